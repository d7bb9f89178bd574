package plan

import "slices"

// pooled is a slot or worker with a value by which it is chosen.
type pooled struct {
	value int64
	id    int32
}

// pool is a sorted list from which items are taken.
type pool struct {
	items []pooled
	// next leads from each place to the first at or after it whose item is still there.
	next []int32
	end  int // all items from here on are taken
}

// newPool takes over items, which must be sorted by value.
func newPool(items []pooled) *pool {
	p := &pool{items: items, next: make([]int32, len(items)+1), end: len(items)}
	for i := range p.next {
		p.next[i] = int32(i)
	}
	return p
}

// find returns the place of the item of the least value that is at least this, or -1.
func (p *pool) find(least int64) int {
	at, _ := slices.BinarySearchFunc(p.items, least, func(x pooled, least int64) int {
		if x.value < least {
			return -1
		}
		return 1
	})
	for int(p.next[at]) != at {
		p.next[at] = p.next[p.next[at]]
		at = int(p.next[at])
	}
	if at == len(p.items) {
		return -1
	}
	return at
}

// last returns the place of the item of the highest value, or -1.
func (p *pool) last() int {
	for p.end > 0 && int(p.next[p.end-1]) != p.end-1 {
		p.end--
	}
	return p.end - 1
}

func (p *pool) remove(at int) { p.next[at] = int32(at + 1) }
