package partition

import (
	"sync"
	"time"
)

// HandlerMetrics is what a worker knows of the calls of its handler, those of the retry queue
// included.
type HandlerMetrics struct {
	InFlight int    // calls that run now
	Failed   uint64 // calls that returned an error or panicked
	// Duration is how long calls took that have returned. Its Count is their number, failed
	// ones included.
	Duration Histogram
}

// handlerCalls counts the calls of the handler. The zero value has counted none.
type handlerCalls struct {
	mu       sync.Mutex
	inFlight int
	failed   uint64
	duration histogram
}

// begin counts a call that begins now. The returned function counts its return.
func (h *handlerCalls) begin() (returned func(error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inFlight++
	began := time.Now()
	return func(err error) { h.returned(time.Since(began), err) }
}

func (h *handlerCalls) returned(took time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inFlight--
	if err != nil {
		h.failed++
	}
	h.duration.observe(took)
}

func (h *handlerCalls) metrics() HandlerMetrics {
	h.mu.Lock()
	defer h.mu.Unlock()
	return HandlerMetrics{InFlight: h.inFlight, Failed: h.failed, Duration: h.duration.snapshot()}
}
