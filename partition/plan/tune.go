package plan

import (
	"math/bits"
	"slices"
)

// Tuning makes loads even in large problems. Trying every pair of workers for the best trade, as
// trade does, takes seconds for a thousand workers. It also moves more slots than needed, since it
// evens out two loads even if one slot would bring both within the tolerance. Tuning asks for less:
// a worker whose load is off looks for the fewest slots that bring it back within the tolerance, and
// asks only the few workers that can help most.
//
// Each trade brings two loads nearer to their targets: the sum of the squares of what they are off
// falls, so tuning ends. Besides, looks limits its work.

const (
	// maxLooked limits how many workers one worker tries to exchange slots with: about as many as
	// have this many slots together. Where workers have few slots, it takes more of them to find one
	// that fits.
	maxLooked = 24
	// maxEvened limits, in the same way, with how many of them it tries to even out its load, by
	// single slots and, if nothing else is left, by pairs as well.
	maxEvened, maxPaired = 12, 48
	// maxNear is how many slots on either side of the ideal weight exchangeByWeight looks at.
	maxNear = 16
)

// tuning is the state of tune.
type tuning struct {
	*balance
	// relieving: workers above their windows give; otherwise workers below them take.
	relieving bool
	off       standings // workers outside their windows, the farthest first
	partners  partners  // all workers, those that can help most first
	looks     int       // how many slots of partners may still be looked at
	failed    int       // how many workers found no trade lately
	// again: a worker found no trade, or one that went beyond windows, so that another round may help.
	again, traded bool
}

// newTuning returns the state before the first trade.
func newTuning(b *balance) *tuning {
	return &tuning{balance: b, looks: 4096 + 8*len(b.weight)}
}

// tune makes trades between workers whose loads are off and others, and reports whether another
// round may find more.
func (t *tuning) tune() bool {
	t.again, t.traded = false, false
	for _, t.relieving = range []bool{true, false} {
		t.run()
	}
	return t.again && t.traded
}

// window is the least and the most load of w that is not off.
func (b *balance) window(w int32) (least, most int64) {
	switch target := b.target[w]; {
	case !b.f.equal:
		return target - b.within - 1, target + b.within + 1
	case target == b.least+1:
		return b.least - b.within, b.least + b.within + 1
	default:
		return target - b.within, target + b.within + 1
	}
}

// need is the least load that w has to give, or to take, to be in its window.
func (t *tuning) need(w int32) int64 {
	least, most := t.window(w)
	if t.relieving {
		return t.load[w] - most
	}
	return least - t.load[w]
}

// worthwhile is the least load whose move is of use to w. Beside slots that are heavier by orders of
// magnitude, light ones would otherwise move for nothing.
func (t *tuning) worthwhile(w int32) int64 { return min(t.need(w), t.within) / 16 }

// standing orders workers by how much they can take, or give.
func (t *tuning) standing(w int32) standing {
	if t.relieving {
		return standing{first: t.dev(w), rank: t.f.rank[w]}
	}
	return standing{first: -t.dev(w), rank: t.f.rank[w]}
}

// note adds w to the workers to be served if it is off.
func (t *tuning) note(w int32) {
	if need := t.need(w); need > 0 {
		t.off.push(standing{first: -need, rank: t.f.rank[w]})
	}
}

func (t *tuning) noteAll() {
	t.off = t.off[:0]
	for _, w := range t.f.takers {
		t.note(w)
	}
}

func (t *tuning) run() {
	t.failed = 0
	t.noteAll()
	if len(t.off) == 0 {
		return
	}
	t.partners.reset()
	t.partners.rest = slices.Grow(t.partners.rest, len(t.f.takers))
	for _, w := range t.f.takers {
		t.partners.rest = append(t.partners.rest, t.standing(w))
	}
	t.partners.rest.init()

	for len(t.off) > 0 {
		w := t.f.takers[t.off.pop().rank]
		for t.need(w) > 0 && t.serve1(w) {
			t.traded = true
		}
		if t.need(w) > 0 {
			t.failed++
			t.again = true
		} else {
			t.failed /= 2
		}
	}
}

// serve1 makes one trade that improves the load of w, if it finds one.
func (t *tuning) serve1(w int32) bool {
	best := t.ask(w)
	weak := !best.found || best.fixes == 0 && 4*best.delta < t.need(w)
	switch {
	case weak && (t.evenOut(w, maxEvened, 0) || t.exchangeByWeight(w)):
		t.again = true
	case best.found:
		t.apply(best)
	default:
		t.again = true
		return t.evenOut(w, maxPaired, maxPairing)
	}
	return true
}

// ask returns the best exchange of one slot, or of one for another, between w and those that can
// help it most.
func (t *tuning) ask(w int32) exchange {
	var best exchange
	left := t.effort(maxLooked)
	for i := 0; i == 0 || left > 0 && t.looks > 0; i++ {
		v := t.partner(i)
		if v == None {
			break
		}
		if v == w {
			continue
		}
		d := t.dealBetween(w, v)
		if d.limit <= 0 {
			break // those after v can take, or give, even less
		}
		left -= t.look(1 + len(t.slots[v]))
		t.oneSlot(&best, &d)
		if !best.found || best.value < d.most() {
			t.oneForAnother(&best, &d)
		}
		if best.found && best.value >= d.most() {
			break
		}
	}
	return best
}

// look counts n slots as looked at, and returns n.
func (t *tuning) look(n int) int {
	t.looks -= n
	return n
}

// effort is how much of most to spend on one worker: the less, the more of the last ones found no
// trade. Where weights allow no better balance this would otherwise be spent on each of them.
func (t *tuning) effort(most int) int { return most / (1 + t.failed/4) }

// partner is the i-th worker to ask, or None. Standings that trades have changed are put right when
// they come up: a partner becomes less helpful by each trade, so none comes up too late.
func (t *tuning) partner(i int) int32 {
	for {
		x, ok := t.partners.at(i)
		if !ok {
			return None
		}
		w := t.f.takers[x.rank]
		now := t.standing(w)
		if now == x {
			return w
		}
		t.partners.replace(i, now)
	}
}

func (t *tuning) direction(w, v int32) route {
	if t.relieving {
		return route{from: w, to: v}
	}
	return route{from: v, to: w}
}

// room is the load from which on moving it would make the balance of two workers worse again, or to
// more loaded for its capacity than from is.
func (t *tuning) room(r route) int64 {
	room := t.dev(r.from) - t.dev(r.to)
	if t.f.equal {
		return room
	}
	room = min(room, t.gap(r.from, r.to))
	hi, lo := bits.Mul64(uint64(t.load[r.from]), t.f.capacity[r.to])
	if hi < t.f.capacity[r.from] {
		alike, _ := bits.Div64(hi, lo, t.f.capacity[r.from])
		if alike < maxTotal {
			room = min(room, int64(alike)-t.load[r.to]+1)
		}
	}
	return room
}

// evenOut makes the trade that best evens out the loads of w and one of the first partners, even if
// it leaves that outside its window: it may have smaller slots to give. Pairs of slots are tried in
// lists of up to pairing slots.
func (t *tuning) evenOut(w int32, most, pairing int) bool {
	left := t.effort(most)
	for i := 0; i == 0 || left > 0 && t.looks > 0; i++ {
		v := t.partner(i)
		if v == None {
			break
		}
		r := t.direction(w, v)
		gap := t.room(r)
		if v == w || gap <= 1 {
			continue
		}
		left -= t.look(len(t.slots[w]) + len(t.slots[v]))
		found, ok := t.searchUpTo(pairing, t.divisible(r.from), t.divisible(r.to), r, gap, t.maxCost())
		if ok && found.delta() >= t.worthwhile(w) {
			t.make(found, r.from, r.to)
			t.note(v)
			return true
		}
	}
	return false
}

// divisible are the slots of w without the one that is heavier than any share, if that is what w is
// to have.
func (t *tuning) divisible(w int32) []int32 {
	if t.oversized[w] && len(t.slots[w]) > 0 {
		return t.slots[w][1:]
	}
	return t.slots[w]
}

// maxCost is how many more slots may be away from home.
func (t *tuning) maxCost() int {
	if t.f.p.Budget < 0 {
		return maxTradeCost
	}
	return min(maxTradeCost, t.required+min(t.f.p.Budget, t.f.p.Slots)-t.moved)
}

// exchangeByWeight makes the exchange that brings w and another worker nearest to their targets,
// even if not into their windows. It finds the other by the weight of its slot, among all workers.
func (t *tuning) exchangeByWeight(w int32) bool {
	if t.looks <= 0 {
		return false
	}
	best, found := exchange{}, false
	off := t.dev(w)
	worst := abs(off) - abs(off)/8
	for _, s := range t.slots[w][:min(len(t.slots[w]), 2*maxNear)] {
		for _, other := range t.near(t.weight[s] - off) {
			v := t.owner[other]
			delta := t.weight[s] - t.weight[other]
			after := max(abs(off-delta), abs(t.dev(v)+delta))
			if v == w || after >= worst || t.f.overridden(int(other)) != None {
				continue
			}
			if !t.f.equal && abs(delta) >= t.room(t.direction(w, v)) {
				continue
			}
			if t.cost(s, route{from: w, to: v})+t.cost(other, route{from: v, to: w}) > t.maxCost() {
				continue
			}
			best = exchange{route: route{from: w, to: v}, give: s, take: other}
			worst, found = after, true
		}
	}
	if found {
		t.apply(best)
		t.note(best.to)
	}
	return found
}

// near are the slots that weigh most nearly this much.
func (t *tuning) near(weight int64) []int32 {
	at, _ := slices.BinarySearchFunc(t.order[:t.weightless], weight, func(s int32, weight int64) int {
		if t.weight[s] > weight {
			return -1
		}
		return 1
	})
	slots := t.order[max(0, at-maxNear):min(t.weightless, at+maxNear)]
	t.look(len(slots))
	return slots
}

// returnHome undoes moves that turn out not to be needed: those of slots without which their new
// owners, and with which their old ones, are in their windows. It begins with the lightest, so that
// most slots return.
func (b *balance) returnHome() {
	if b.moved == 0 {
		return
	}
	for _, s := range slices.Backward(b.order[:b.weightless]) {
		from, home := b.owner[s], b.home[s]
		if home == None || home == from || b.f.overridden(int(s)) != None {
			continue
		}
		least, _ := b.window(from)
		_, most := b.window(home)
		if b.load[from]-b.weight[s] >= least && b.load[home]+b.weight[s] <= most {
			b.take(s)
			b.put(s, home)
		}
	}
}

func abs(x int64) int64 { return max(x, -x) }
