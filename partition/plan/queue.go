package plan

import "slices"

// queue is a binary heap of workers whose top one changes its place in the
// order again and again. Only what the top worker is compared by may change.
type queue struct {
	workers []int32
	compare func(v, w int32) int
}

// newQueue takes over workers.
func newQueue(workers []int32, compare func(v, w int32) int) *queue {
	q := &queue{workers: workers, compare: compare}
	for i := range slices.Backward(workers) {
		q.down(i)
	}
	return q
}

// top is the first worker in the order.
func (q *queue) top() int32 { return q.workers[0] }

// sink restores the order after the top worker went back in it.
func (q *queue) sink() { q.down(0) }

func (q *queue) down(i int) {
	for {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.workers); child++ {
			if q.compare(q.workers[child], q.workers[first]) < 0 {
				first = child
			}
		}
		if first == i {
			return
		}
		q.workers[i], q.workers[first] = q.workers[first], q.workers[i]
		i = first
	}
}
