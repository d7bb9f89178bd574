package partition

import "fmt"

// This file holds the check that a group at rest is balanced. A plan leaves a slot that moves
// already where it goes, so what it makes of the others may be uneven, and a plan has to follow.

// evenAtRest reports whether the workers that take slots have equally many.
func (c *simChecker) evenAtRest() bool { return c.unevenSlots() == "" }

// unevenSlots says how many slots the workers have, if some have too many. Where slots have
// weights or are overridden, workers have different numbers of them.
func (c *simChecker) unevenSlots() string {
	if c.s.overrides != nil || c.s.weights != nil {
		return ""
	}
	low, high := c.current.Slots, 0
	counts := ""
	for _, w := range c.s.workers {
		takesSlots := !w.dead && w.m.stage == stageJoined && !w.m.membership.draining()
		if !takesSlots || c.current.Index(w.m.self) == -1 {
			continue
		}
		n := 0
		for s := range c.current.Owner {
			if c.current.OwnerAt(s) == w.m.self {
				n++
			}
		}
		low, high = min(low, n), max(high, n)
		counts += fmt.Sprintf(" %v: %d", w, n)
	}
	if high-low <= 1 {
		return ""
	}
	return fmt.Sprintf("of %d slots the workers have%s", c.current.Slots, counts)
}
