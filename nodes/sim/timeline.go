package sim

import (
	"container/heap"
	"time"
)

// timeline is the virtual time and what is to happen in it.
type timeline struct {
	now    time.Time
	agenda agenda
	seq    int    // of the next item, so that items of one moment happen in the order in which they were added
	each   func() // runs after every item
}

// after does f when d has passed.
func (t *timeline) after(d time.Duration, f func()) {
	t.seq++
	heap.Push(&t.agenda, item{t.now.Add(d), t.seq, f})
}

// advance does everything that is due by a time and makes it the present. Time never goes back.
func (t *timeline) advance(to time.Time) {
	for len(t.agenda) > 0 && !t.agenda[0].at.After(to) {
		it := heap.Pop(&t.agenda).(item)
		if it.at.After(t.now) {
			t.now = it.at
		}
		it.do()
		t.each()
	}
	if to.After(t.now) {
		t.now = to
	}
}

// item is something that happens at a time.
type item struct {
	at  time.Time
	seq int
	do  func()
}

// agenda is a heap of items, the next one first.
type agenda []item

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at.Equal(a[j].at) && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(item)) }
func (a *agenda) Pop() any {
	old := *a
	it := old[len(old)-1]
	*a = old[:len(old)-1]
	return it
}
