package partition

import "time"

// Delivery sets how long a handler may take, and when a message is tried again.
type Delivery struct {
	// HandlerTimeout bounds one call of the handler; default 0, which is no bound.
	HandlerTimeout time.Duration
	// RetryDelay is the first pause before a failed message is tried again at the head of its
	// slot, doubled up to 5 s; default 100 ms.
	RetryDelay time.Duration
	// AckWait is how long the server waits for a silent worker before it delivers a message
	// again, the last resort behind the leader's takeover; at least 1 s, default 30 s.
	AckWait time.Duration
}

func (d Delivery) resolve() Delivery {
	defaulted(&d.RetryDelay, 100*time.Millisecond)
	defaulted(&d.AckWait, 30*time.Second)
	return d
}

func (d Delivery) validate(f *faults) {
	if d.HandlerTimeout < 0 {
		f.add("Delivery.HandlerTimeout is %v: give 0 for none, or a positive duration", d.HandlerTimeout)
	}
	f.positive("Delivery.RetryDelay", d.RetryDelay)
	if d.AckWait < time.Second {
		f.add("Delivery.AckWait is %v: give at least 1s", d.AckWait)
	}
}
