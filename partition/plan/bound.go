package plan

import "math"

// finish lists the moves from the previous owners to the given ones and
// measures them. The reason of a move that nothing forces is Balance.
func (f *frame) finish(owners []int32) Plan {
	pl := Plan{Owners: owners, Notes: f.notes}
	n := 0
	for s, o := range owners {
		if o != None && o != f.previous(s) {
			n++
		}
	}
	if n > 0 {
		pl.Moves = make([]Move, 0, n)
	}
	for s, o := range owners {
		if from := f.previous(s); o != None && o != from {
			reason, _ := f.forcedReason(s)
			pl.Moves = append(pl.Moves, Move{Slot: s, From: from, To: o, Reason: reason})
			pl.Stats.MovedWeight += f.weight(s)
		}
	}
	f.measure(&pl)
	return pl
}

func (f *frame) measure(pl *Plan) {
	if len(f.takers) == 0 {
		return
	}
	load := make([]uint64, len(f.p.Workers))
	count := make([]int, len(f.p.Workers))
	var total uint64
	for s, o := range pl.Owners {
		w := f.weight(s)
		total += w
		load[o] += w
		count[o]++
	}
	var all uint64
	st := &pl.Stats
	st.MinLoad, st.MinSlots = math.MaxUint64, math.MaxInt
	for _, w := range f.takers {
		all += f.capacity[w]
		st.MinLoad, st.MaxLoad = min(st.MinLoad, load[w]), max(st.MaxLoad, load[w])
		st.MinSlots, st.MaxSlots = min(st.MinSlots, count[w]), max(st.MaxSlots, count[w])
	}
	for _, w := range f.takers {
		if total > 0 {
			share := float64(total) * (float64(f.capacity[w]) / float64(all))
			st.WorstOverMean = max(st.WorstOverMean, float64(load[w])/share)
		}
	}
	st.LowerBound = f.lowerBound()
}

// lowerBound counts the slots that must move: those that nothing lets stay, and
// for each worker above the highest load of a balanced plan as many of the
// weight of its heaviest slot as would bring it down to that.
func (f *frame) lowerBound() int {
	n := len(f.p.Workers)
	held, base, top := make([]uint64, n), make([]uint64, n), make([]uint64, n)
	unit := f.alike()
	var total, heaviest uint64
	moves := 0
	for s := range f.p.Slots {
		w := uint64(1)
		if !unit {
			w = f.weight(s)
		}
		total += w
		heaviest = max(heaviest, w)
		h := f.home(s)
		if h == None {
			moves++
		}
		if override := f.overridden(s); override != None {
			base[override] += w
			held[override] += w
		} else if h != None {
			held[h] += w
			top[h] = max(top[h], w)
		}
	}
	target := f.apportion(total, base, held)
	for _, w := range f.takers {
		allowed := target[w]
		if !unit {
			// Who gets the remainder and how near to its share the weights let a
			// load come is open. But a worker above its share by more than any
			// slot could give one away to somebody's advantage.
			allowed = max(allowed+1+max(target[w]/tolerance, heaviest), base[w])
		}
		if held[w] > allowed {
			moves += int((held[w] - allowed + top[w] - 1) / top[w])
		}
	}
	return moves
}

// tolerance is the divisor of a share that tells how far a load may be from it:
// 4 %, so that with rounding the worst load stays below 1.05 of the mean.
const tolerance = 25
