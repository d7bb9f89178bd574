package plan

import "slices"

// partners are workers in order of their standings. Only the first of them are looked at, again and
// again, so only these are sorted; the rest is a heap.
type partners struct {
	first []standing
	rest  standings
}

func (p *partners) reset() { p.first, p.rest = p.first[:0], p.rest[:0] }

// at returns the i-th worker in order, if there are that many. i may be one more than in the call
// before.
func (p *partners) at(i int) (standing, bool) {
	if i == len(p.first) && len(p.rest) > 0 {
		p.first = append(p.first, p.rest.pop())
	}
	if i >= len(p.first) {
		return standing{}, false
	}
	return p.first[i], true
}

// replace gives the i-th worker, which was looked at, another standing.
func (p *partners) replace(i int, x standing) {
	p.first = slices.Delete(p.first, i, i+1)
	if n := len(p.first); n == 0 || p.first[n-1].before(&x) {
		p.rest.push(x)
		return
	}
	at, _ := slices.BinarySearchFunc(p.first, x, func(y, x standing) int {
		if y.before(&x) {
			return -1
		}
		return 1
	})
	p.first = slices.Insert(p.first, at, x)
}
