package defender

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition"
)

// A chamberCount is read from the store again after this time, so that a chamber
// that is registered while defenders run is counted soon.
const countFor = time.Minute

// countTimeout bounds one reading of the store.
const countTimeout = 5 * time.Second

// ChamberCount counts the registered chambers in slots. It keeps a number per slot
// and no names: there may be very many chambers, and there are many defenders.
//
// Its methods may be called by several goroutines at once.
type ChamberCount struct {
	store Store
	now   func() time.Time

	mu     sync.Mutex
	perOf  []int // number of chambers by slot; its length is the group's number of slots
	readAt time.Time
}

// newChamberCount returns a count of the chambers that are registered in store.
func newChamberCount(store Store) *ChamberCount {
	return &ChamberCount{store: store, now: time.Now}
}

// In returns the number of registered chambers in the slots. It reads the store if
// the last reading is over a minute old, or if the number of slots has changed. If the
// store can't be read it counts by the last reading, and returns 0 without one.
func (c *ChamberCount) In(slots partition.Slots) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.perOf) != slots.Of || c.now().Sub(c.readAt) > countFor {
		c.read(slots.Of)
	}
	if len(c.perOf) != slots.Of {
		return 0
	}
	n := 0
	for _, s := range slots.Slots {
		n += c.perOf[s]
	}
	return n
}

func (c *ChamberCount) read(of int) {
	ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
	defer cancel()
	registered, err := c.store.Chambers(ctx)
	if err != nil || len(registered) == 0 {
		return
	}
	c.perOf, c.readAt = make([]int, of), c.now()
	for _, r := range registered {
		c.perOf[partition.SlotOf(of, r.Chamber.Tool, r.Chamber.Name)]++
	}
}
