package partitiontest

import (
	"errors"
	"fmt"
	"time"
)

// Options sets up a simulated group. The zero value is a group of three workers with the defaults
// of [partition.Config], and with few slots.
type Options struct {
	// Workers is how many there are at the start; default 3. They are named worker-0, worker-1 and
	// so on.
	Workers int
	// Slots is in how many slots the keys are divided; default 16.
	Slots int
	// InFlight is how many messages of a slot are handled at a time, of different keys; default 1.
	InFlight int
	// Attempts is after how many failed attempts a message becomes a dead letter; default 5.
	Attempts int
	// RetryDelay is the pause before a message is tried again that has failed, doubled up to a
	// minute; default 1 s.
	RetryDelay time.Duration
	// HandlerTimeout bounds one call of the handler; default 0, which is no bound.
	HandlerTimeout time.Duration
	// Detection is after how long a worker that is killed or paused loses its slots; default 650 ms.
	Detection time.Duration
}

// validate returns everything that is wrong.
func (o Options) validate() error {
	var faults []error
	for _, f := range []struct {
		name  string
		below bool
		value any
	}{
		{"Workers", o.Workers < 0, o.Workers}, {"Slots", o.Slots < 0, o.Slots}, {"InFlight", o.InFlight < 0, o.InFlight}, {"Attempts", o.Attempts < 0, o.Attempts},
		{"RetryDelay", o.RetryDelay < 0, o.RetryDelay}, {"HandlerTimeout", o.HandlerTimeout < 0, o.HandlerTimeout}, {"Detection", o.Detection < 0, o.Detection},
	} {
		if f.below {
			faults = append(faults, fmt.Errorf("partitiontest: Options.%s is %v: give 0 for the default, or more", f.name, f.value))
		}
	}
	return errors.Join(faults...)
}

func (o Options) resolve() Options {
	if o.Workers == 0 {
		o.Workers = 3
	}
	if o.Slots == 0 {
		o.Slots = 16
	}
	if o.InFlight == 0 {
		o.InFlight = 1
	}
	if o.Attempts == 0 {
		o.Attempts = 5
	}
	if o.RetryDelay == 0 {
		o.RetryDelay = time.Second
	}
	if o.Detection == 0 {
		o.Detection = 650 * time.Millisecond
	}
	return o
}

// Bounds that the library has by default.
const (
	unavailableDelay = 100 * time.Millisecond // doubled up to longestPause
	longestPause     = 5 * time.Second
	longestRetry     = time.Minute
	prepareTimeout   = 5 * time.Second
	handoffTimeout   = 20 * time.Second
	stateTimeout     = 5 * time.Second
)

// doubled returns d doubled n times, at most most.
func doubled(d time.Duration, n int, most time.Duration) time.Duration {
	for ; n > 0 && d < most; n-- {
		d *= 2
	}
	return min(d, most)
}
