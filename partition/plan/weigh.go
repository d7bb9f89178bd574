package plan

import (
	"cmp"
	"slices"
)

// byWeight plans slots of different weights.
func (f *frame) byWeight() Plan {
	b := newBalance(f)
	b.placeOrphans()
	for range maxRounds {
		b.share()
		feeding := !f.p.TuneOnly && b.feed()
		b.required = max(b.required, b.moved)
		if trading := b.trade(onlyFree); !feeding && !trading {
			break
		}
	}
	for range maxRounds {
		b.share() // trades of oversized slots change who shares the rest
		if f.p.Budget == 0 || !b.trade(withinBudget) {
			break
		}
	}
	return b.finish()
}

// maxRounds ends the alternation of feeding and free trades, which settles in
// two or three rounds.
const maxRounds = 8

// placeOrphans gives every slot without owner to the least loaded worker,
// heaviest first, and those without weight to the workers with the fewest.
func (b *balance) placeOrphans() {
	slices.SortFunc(b.orphan, b.heavier)
	weightless, _ := slices.BinarySearchFunc(b.orphan, 0, func(s int32, _ int) int {
		return -cmp.Compare(b.weight[s], 0)
	})
	q := newQueue(slices.Clone(b.f.takers), b.lighter)
	for _, s := range b.orphan[:weightless] {
		b.put(s, q.top())
		q.sink()
	}
	q = newQueue(q.workers, b.fewer)
	for _, s := range b.orphan[weightless:] {
		b.put(s, q.top())
		q.sink()
	}
	b.orphan = nil
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
