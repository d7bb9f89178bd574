package partition

// inputQueue brings inputs to the loop of a worker, which is the only goroutine that steps
// the machine. Watches, subscriptions, callbacks and the delivery post to it, from
// goroutines of their own.
type inputQueue struct {
	inputs chan input
	done   chan struct{} // closed when the loop has ended
}

func newInputQueue() inputQueue {
	return inputQueue{inputs: make(chan input, 1024), done: make(chan struct{})}
}

// post adds an input. It waits while the queue is full. After the end of the loop inputs
// are dropped, so that no poster waits for a loop that never takes its input.
func (q inputQueue) post(in input) {
	select {
	case q.inputs <- in:
	case <-q.done:
	}
}

// close drops what is posted from now on.
func (q inputQueue) close() { close(q.done) }
