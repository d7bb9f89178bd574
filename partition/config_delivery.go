package partition

import (
	"runtime"
	"time"
)

// handlersPerProcessor times GOMAXPROCS is the default of Delivery.MaxHandlers. Handlers
// mostly wait for a store, so there are more of them than processors.
const handlersPerProcessor = 32

// mostHandlers is the most that Delivery.MaxHandlers can be.
const mostHandlers = 1_000_000

// mostInFlight is the most that Delivery.InFlight can be.
const mostInFlight = 1024

// Delivery sets how many handlers run, how long one may take, and when a message is tried
// again.
type Delivery struct {
	// MaxHandlers bounds how many handlers of one worker run at once, over all its slots; up to
	// a million, default 32 times GOMAXPROCS. Slots take turns, so one that has many messages
	// keeps no other waiting. A handler that does not return after its context is cancelled
	// still counts. Workers of a group may differ in it.
	MaxHandlers int
	// HandlerTimeout bounds one call of the handler; default 0, which is no bound.
	HandlerTimeout time.Duration
	// InFlight is how many messages of a slot may be delivered and not settled, 1 to 1024;
	// default 1. With more, a worker handles messages of different keys of a slot at the same
	// time, and the messages of a key one after another, so a slow or failing message delays its
	// own key only. It has at most that number in memory for each slot that it owns.
	InFlight int
	// RetryDelay is the first pause before a failed message is tried again at the head of its
	// slot, doubled up to 5 s; default 100 ms.
	RetryDelay time.Duration
	// AckWait is how long the server waits for a silent worker before it delivers a message
	// again, the last resort behind the leader's takeover; at least 1 s, default 30 s.
	AckWait time.Duration
}

func (d Delivery) resolve() Delivery {
	defaulted(&d.MaxHandlers, handlersPerProcessor*runtime.GOMAXPROCS(0))
	defaulted(&d.InFlight, 1)
	defaulted(&d.RetryDelay, 100*time.Millisecond)
	defaulted(&d.AckWait, 30*time.Second)
	return d
}

// pullBatch is how many messages one pull asks for. The consumer bounds how many are in
// flight, so a larger batch only saves requests.
func (d Delivery) pullBatch() int { return max(leastPull, d.InFlight) }

func (d Delivery) validate(f *faults) {
	f.within("Delivery.MaxHandlers", d.MaxHandlers, mostHandlers)
	f.within("Delivery.InFlight", d.InFlight, mostInFlight)
	if d.HandlerTimeout < 0 {
		f.add("Delivery.HandlerTimeout is %v: give 0 for none, or a positive duration", d.HandlerTimeout)
	}
	f.positive("Delivery.RetryDelay", d.RetryDelay)
	if d.AckWait < time.Second {
		f.add("Delivery.AckWait is %v: give at least 1s", d.AckWait)
	}
}
