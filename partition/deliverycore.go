package partition

import (
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// deliveryCore is what all runs of a delivery share: the settings, the lease, what was
// settled, the time and the effects of the present step. It is used within a step only, so
// only memory and retries, which others read, are safe for several goroutines.
type deliveryCore struct {
	cfg      Config
	memory   *memory // of what was settled
	retries  *retryCounts
	handlers handlerLimit
	inbox    *requestInbox  // of requests that callers have sent
	loads    bool           // the handler is a StateMover: it needs the state of a slot first
	batch    int            // messages that one pull asks for
	pulled   map[place]bool // slots that a pull was ever made for

	// The lease lets messages begin until a moment, unless suspended. The machine
	// suspends with its next step only; a process that was stopped and continues
	// must not begin anything before that step.
	suspended bool
	until     time.Time

	now time.Time
	out []deliveryEffect
}

// retryCounts are of all slots that a worker ever had.
type retryCounts struct{ queued, retries, abandoned atomic.Uint64 }

// valid reports whether a message may begin.
func (d *deliveryCore) valid() bool { return !d.suspended && d.now.Before(d.until) }

func (d *deliveryCore) do(e deliveryEffect) { d.out = append(d.out, e) }

func (d *deliveryCore) note(e event.Event) { d.do(reportEffect{noteInput{e}}) }

// rolledBack forgets what is remembered of a slot's stream, and tells of it, unless
// that was done since then.
func (d *deliveryCore) rolledBack(slot int, forgets uint64, what string) {
	if forgotten, was := d.memory.forget(slot, forgets); was {
		d.do(rolledBackEffect{slot, what, forgotten})
	}
}
