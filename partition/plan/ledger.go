package plan

const (
	maxBundleSlots = 2
	maxBundleCost  = maxBundleSlots
)

// bundle is up to two slots.
type bundle struct {
	sum  int64
	pair [maxBundleSlots]int32 // None for no slot, which comes last
}

func (u *bundle) slots() []int32 {
	for n, s := range u.pair {
		if s == None {
			return u.pair[:n]
		}
	}
	return u.pair[:]
}

// ledger holds the bundles of one list by cost, offset by maxBundleCost, each
// in ascending order of sum and with no sum twice.
type ledger [2*maxBundleCost + 1][]bundle

// books are the two sides of a search.
type books struct{ give, take ledger }

// scratch is memory that searches use again: single slots first, then pairs
// as well.
type scratch [2]books

// alike finds the slots that weigh and cost the same as one before, in a list by weight.
type alike [3]struct {
	seen   bool
	weight int64
}

// has reports whether there was such a slot, and notes this one.
func (a *alike) has(weight int64, cost int) bool {
	last := &a[cost+1]
	if last.seen && last.weight == weight {
		return true
	}
	last.seen, last.weight = true, weight
	return false
}
