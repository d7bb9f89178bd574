package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition/report"
)

// checks are what holds in more than one scenario.
type checks struct {
	report   *Report
	o        Options
	chambers chambers
	view     seen
	endings  func() map[string]int64 // see [rig.endings]
}

// spread checks that all chambers are covered, and evenly.
func (c *checks) spread(a *report.Map, workers int) {
	counts := c.chambers.counts(a)
	covered := c.chambers.covered(a)
	r := c.report
	r.measure("chambers_covered", covered)
	r.measure("min_chambers", slices.Min(counts))
	r.measure("max_chambers", slices.Max(counts))
	equal(r, "chambers covered", c.o.Chambers, covered)
	equal(r, "defenders in the map", workers, len(a.Workers))
	low, high := c.o.Chambers/workers, (c.o.Chambers+workers-1)/workers
	r.check("chambers each", fmt.Sprintf("%d to %d", low, high), slices.Min(counts) >= low && slices.Max(counts) <= high, "%d to %d", slices.Min(counts), slices.Max(counts))
}

// nothingMoved checks that a map is another one with the same owners, by
// name, and the same version.
func (c *checks) nothingMoved(before, after *report.Map) {
	moved := 0
	for slot := range after.Owner {
		if before.OwnerOf(slot) != after.OwnerOf(slot) {
			moved++
		}
	}
	c.report.measure("moved_slots", moved)
	equal(c.report, "slots moved", 0, moved)
	equal(c.report, "map version", before.Version, after.Version)
}

// epochs checks that no map of an earlier leader comes after one of a later.
func (c *checks) epochs() {
	var last uint64
	back := 0
	for _, m := range c.view.Versions() {
		if m.Epoch < last {
			back++
		}
		last = max(last, m.Epoch)
	}
	equal(c.report, "maps of a former leader", 0, back)
}

// messages compares what was published with what was processed.
func (c *checks) messages(pubs []publication, runs []run) {
	f := examine(pubs, runs, c.endings())
	r := c.report
	r.measure("published", f.Published)
	r.measure("completed", f.Completed)
	r.measure("lost", f.Lost)
	r.measure("concurrent", f.Concurrent)
	r.measure("out_of_order", f.OutOfOrder)
	r.measure("duplicates", f.Duplicates)
	r.check("published", "at least one message a chamber", f.Published >= c.o.Chambers, "%d", f.Published)
	r.check("lost", "0", f.Lost == 0, "%d %s", f.Lost, strings.Join(f.LostKeys, " "))
	equal(r, "concurrent", 0, f.Concurrent)
	equal(r, "out of order", 0, f.OutOfOrder)
}

// account checks what the auditor says of a run in which no message was bad.
func (c *checks) account(a audit.Account) {
	r := c.report
	r.check("published", "at least one message a chamber", a.Messages >= c.o.Chambers, "%d, %d of them not confirmed to the publisher", a.Messages, a.Unconfirmed)
	equal(r, "lost", 0, a.Lost)
	equal(r, "messages without evidence", 0, a.Unknown)
	equal(r, "messages still in the stream", 0, a.Left)
	equal(r, "applied twice, changed, or of nothing published", 0, a.StoredTwice+a.FromNowhere)
	equal(r, "concurrent", 0, a.Concurrent)
	equal(r, "out of order", 0, a.OutOfOrder)
	equal(r, "results stored out of order, or under an older fence", 0, a.EffectsDisorder+a.FenceBack)
	equal(r, "dead letters", 0, a.DeadLetters)
}

// spreadSlots checks that some workers have all slots, and evenly.
func (c *checks) spreadSlots(a *report.Map, workers int) {
	counts := slices.Sorted(maps.Values(a.Counts()))
	owned := 0
	for _, n := range counts {
		owned += n
	}
	equal(c.report, "workers in the map", workers, len(a.Workers))
	equal(c.report, "slots with an owner", a.Slots, owned)
	least, most := counts[0], counts[len(counts)-1]
	c.report.check("slots each", "as even as they can be, one more after a failure", most-least <= 2, "%d to %d", least, most)
}
