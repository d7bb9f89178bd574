package plan

// deal is what an exchange between two workers should move, in load.
type deal struct {
	route
	excess, lack int64 // what from has above its window, and to below; not positive if it is not off
	limit        int64 // the most that leaves both in their windows and improves the balance
	ideal        int64
	least        int64 // less is not worth a move, unless it fixes a worker
	cost         int   // the most that it may cost
}

func (t *tuning) dealBetween(w, v int32) deal {
	r := t.direction(w, v)
	leastFrom, mostFrom := t.window(r.from)
	leastTo, mostTo := t.window(r.to)
	d := deal{
		route:  r,
		excess: t.load[r.from] - mostFrom,
		lack:   leastTo - t.load[r.to],
		limit:  min(t.load[r.from]-leastFrom, mostTo-t.load[r.to], t.room(r)-1),
		least:  t.worthwhile(w),
		cost:   t.maxCost(),
	}
	enough := (d.limit + 1) / 2
	for _, off := range [...]int64{d.excess, d.lack} {
		if off <= d.limit {
			enough = max(enough, off)
		}
	}
	d.ideal = min(max(t.dev(r.from), enough), max(-t.dev(r.to), enough), d.limit)
	return d
}

// fixes is how many of the two workers are off but not after delta has moved.
func (d *deal) fixes(delta int64) int {
	n := 0
	if 0 < d.excess && d.excess <= delta {
		n++
	}
	if 0 < d.lack && d.lack <= delta {
		n++
	}
	return n
}

// most is the value of an exchange that fixes all it can and costs one move.
func (d *deal) most() int { return 2*d.fixes(d.limit) - 1 }

// exchange is one slot for another, or for none.
type exchange struct {
	route
	give, take  int32
	delta, miss int64
	fixes       int
	value       int // what it is good for less what it costs
	found       bool
}

// consider replaces e if giving one slot for the other is better. A worker fixed is worth two slots
// away from home, so that two moves that fix one worker are better than one that fixes none. Of equal
// value, what moves more nearly the ideal load is better, or, if nothing is fixed, what moves more.
func (e *exchange) consider(d *deal, give, take int32, delta int64, cost int) {
	if delta <= 0 || delta > d.limit || cost > d.cost {
		return
	}
	fixes, miss := d.fixes(delta), abs(delta-d.ideal)
	if fixes == 0 && delta < d.least {
		return
	}
	value := 2*fixes - cost
	if e.found {
		better := fixes > 0 && miss < e.miss || fixes == 0 && delta > e.delta
		if value < e.value || value == e.value && !better {
			return
		}
	}
	*e = exchange{route: d.route, give: give, take: take, delta: delta, miss: miss, fixes: fixes, value: value, found: true}
}

func (t *tuning) oneSlot(best *exchange, d *deal) {
	for _, s := range t.slots[d.from] {
		if t.weight[s] <= d.limit {
			best.consider(d, s, None, t.weight[s], t.cost(s, d.route))
		}
	}
}

// oneForAnother tries for each slot the two that make the exchange most nearly ideal. It begins with
// the lightest: of exchanges that are equally good, the one that moves least stays.
func (t *tuning) oneForAnother(best *exchange, d *deal) {
	back := route{from: d.to, to: d.from}
	give, take := t.slots[d.from], t.slots[d.to]
	k := len(take) - 1
	for i := len(give) - 1; i >= 0; i-- {
		s := give[i]
		for k >= 0 && t.weight[s]-t.weight[take[k]] >= d.ideal {
			k--
		}
		for j := k + 1; j >= max(0, k); j-- {
			if j == len(take) {
				continue
			}
			other := take[j]
			if delta := t.weight[s] - t.weight[other]; 0 < delta && delta <= d.limit {
				best.consider(d, s, other, delta, t.cost(s, d.route)+t.cost(other, back))
			}
		}
	}
}

// apply makes the exchange.
func (t *tuning) apply(e exchange) {
	t.take(e.give)
	t.put(e.give, e.to)
	if e.take != None {
		t.take(e.take)
		t.put(e.take, e.from)
	}
}
