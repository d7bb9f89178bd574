package partition

import (
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/report"
)

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

func (h *handlerCalls) metrics() report.HandlerMetrics {
	h.mu.Lock()
	defer h.mu.Unlock()
	return report.HandlerMetrics{InFlight: h.inFlight, Failed: h.failed, Duration: h.duration.snapshot()}
}
