package plan

import (
	"cmp"
	"slices"
)

// maxThorough is how many slots are planned by trying all trades. With more slots this takes too
// long, and their number leaves enough choice without.
const maxThorough = 256

// byWeight plans slots of different weights.
func (f *frame) byWeight() Plan {
	b := newBalance(f)
	b.placeOrphans()
	if f.p.Slots <= maxThorough {
		b.tradeThoroughly()
	} else {
		b.tuneWhatIsOff()
	}
	return b.finish()
}

// tradeThoroughly makes all trades that improve the balance and cost nothing, then those that the
// budget allows while a load is off.
func (b *balance) tradeThoroughly() {
	for range maxRounds {
		b.share()
		feeding := !b.f.p.TuneOnly && b.feed()
		b.required = max(b.required, b.moved)
		if trading := b.trade(onlyFree); !feeding && !trading {
			break
		}
	}
	for range maxRounds {
		b.share() // trades of oversized slots change who shares the rest
		if b.f.p.Budget == 0 || !b.trade(withinBudget) {
			break
		}
	}
}

// tuneWhatIsOff makes only the trades that bring loads that are off within the tolerance, or at least
// nearer to it.
func (b *balance) tuneWhatIsOff() {
	t := newTuning(b)
	for round := range maxRounds {
		b.share() // trades of oversized slots change who shares the rest
		before := b.moved
		feeding := !b.f.p.TuneOnly && b.feedFew()
		b.required += max(0, b.moved-before)
		if round == 0 {
			t.repack()
			t.match()
		}
		if trading := t.tune(); !feeding && !trading {
			break
		}
	}
	b.returnHome()
}

// maxRounds ends the alternation of sharing with trades, which settles in two or three rounds.
const maxRounds = 8

// placeOrphans gives every slot without owner to the least loaded worker,
// heaviest first, and those without weight to the workers with the fewest.
func (b *balance) placeOrphans() {
	if len(b.orphan) == 0 {
		return
	}
	weightless, _ := slices.BinarySearchFunc(b.orphan, 0, func(s int32, _ int) int {
		return -cmp.Compare(b.weight[s], 0)
	})
	if b.f.equal {
		b.spread(b.orphan[:weightless], func(w int32) standing {
			return standing{first: b.load[w], second: int64(b.count[w]), rank: b.f.rank[w]}
		})
		b.spread(b.orphan[weightless:], func(w int32) standing {
			return standing{first: int64(b.count[w]), second: b.load[w], rank: b.f.rank[w]}
		})
	} else {
		b.spreadByCapacity(b.orphan[:weightless], b.lighter)
		b.spreadByCapacity(b.orphan[weightless:], b.fewer)
	}
	b.listSlots()
}

// spread gives each slot to the first worker in an order that does not depend on capacity.
func (b *balance) spread(slots []int32, stand func(w int32) standing) {
	if len(slots) == 0 {
		return
	}
	h := make(standings, len(b.f.takers))
	for i, w := range b.f.takers {
		h[i] = stand(w)
	}
	h.init()
	for _, s := range slots {
		w := b.f.takers[h[0].rank]
		b.adopt(s, w)
		h[0] = stand(w)
		h.down(0)
	}
}

// spreadByCapacity gives each slot to the first worker in the order.
func (b *balance) spreadByCapacity(slots []int32, compare func(v, w int32) int) {
	q := newQueue(slices.Clone(b.f.takers), compare)
	for _, s := range slots {
		b.adopt(s, q.top())
		q.sink()
	}
}

// adopt makes w the owner of s, which has neither home nor owner, but does not list it.
func (b *balance) adopt(s, w int32) {
	b.owner[s] = w
	b.load[w] += b.weight[s]
	b.count[w]++
}

// finish tells the moves that feeding made, or others in their place, from
// those that only tune.
func (b *balance) finish() Plan {
	pl := b.f.finish(b.owner)
	quota := b.required
	label := func(is func(m *Move) bool) {
		for i := range pl.Moves {
			m := &pl.Moves[i]
			if m.Reason == Tuning && quota > 0 && is(m) {
				m.Reason = Balance
				quota--
			}
		}
	}
	for i := range pl.Moves {
		if pl.Moves[i].Reason == Balance {
			pl.Moves[i].Reason = Tuning
		}
	}
	label(func(m *Move) bool { return b.fed[m.Slot] })
	label(func(m *Move) bool { return b.hungry[m.To] })
	label(func(*Move) bool { return true })
	return pl
}
