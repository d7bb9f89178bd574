package deployed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// history reads a group's stored events, all that are kept and then what happens, each once.
type history struct {
	group *partition.Group
	link  link

	begun  bool                            // the kept ones have been told
	last   time.Time                       // when the newest one came
	recent map[[sha256.Size]byte]time.Time // when those came that a break may bring again
	pruned time.Time                       // when those that are too old were removed
}

const (
	// historyOverlap is how much is read again after a break, since events have no number here, and the servers' clock isn't ours.
	historyOverlap = 2 * time.Minute
	historyAgain   = 2 * time.Second // after a break
)

// follow tells of events until ctx ends. kept gets those that were stored before, all at once, and then tell each one.
func (h *history) follow(ctx context.Context, kept func([]event.Event), tell func(event.Event)) {
	h.recent = map[[sha256.Size]byte]time.Time{}
	for ctx.Err() == nil {
		if h.link.up() == nil {
			h.read(ctx, kept, tell)
		}
		pause(ctx, historyAgain)
	}
}

// read reads until the stream breaks off. What was missed meanwhile is read by the next call.
func (h *history) read(ctx context.Context, kept func([]event.Event), tell func(event.Event)) {
	if !h.begun {
		began := time.Now()
		var all []event.Event
		err := h.group.Events(ctx, event.Query{}, func(e event.Event) error {
			if h.fresh(e) {
				all = append(all, e)
			}
			return nil
		})
		if err != nil {
			return // the group's other readings say why
		}
		h.begun, h.last = true, began
		kept(all)
	}
	_ = h.group.Events(ctx, event.Query{Since: h.last.Add(-historyOverlap), Follow: true}, func(e event.Event) error {
		if h.fresh(e) {
			h.last = time.Now()
			tell(e)
		}
		return nil
	})
}

// fresh reports whether an event has not been told yet, as far as the overlap reaches.
func (h *history) fresh(e event.Event) bool {
	b, err := json.Marshal(e)
	if err != nil {
		return false
	}
	key, now := sha256.Sum256(b), time.Now()
	if _, told := h.recent[key]; told {
		return false
	}
	if now.Sub(h.pruned) > historyOverlap {
		for k, at := range h.recent {
			if h.last.Sub(at) > 2*historyOverlap { // of the newest one, however long ago that was: a break is read from there
				delete(h.recent, k)
			}
		}
		h.pruned = now
	}
	h.recent[key] = now
	return true
}
