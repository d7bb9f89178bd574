package partition

import "sync"

// reports gives inputs to the machine in their order, without making anyone wait.
type reports struct {
	mu    sync.Mutex
	queue []input
	busy  bool
	give  func(input)
}

func (r *reports) post(in input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, in)
	if r.busy {
		return
	}
	r.busy = true
	go func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for len(r.queue) > 0 {
			queue := r.queue
			r.queue = nil
			r.mu.Unlock()
			for _, in := range queue {
				r.give(in)
			}
			r.mu.Lock()
		}
		r.busy = false
	}()
}
