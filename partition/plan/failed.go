package plan

// failedSearches remembers between which workers no trade was found. Nearly all searches fail: a
// sweep tries each worker with up to 64 others, and most have what others have, too. Whether
// there is a trade depends on the weights of the slots on both sides, on which of them are at
// home, on the gap and on what a trade may cost, not on which workers they are. So one failure
// speaks for all pairs that are alike, and a plan is the same as without.
type failedSearches struct {
	kinds map[string]int32 // by what a worker has
	of    []workerKind     // per worker
	known map[failedSearch]bool
}

// workerKind is what a worker's slots have to do with a search.
type workerKind struct {
	kind int32 // workers of one kind have the same weights, and the same of them at home; 0: not known
	// guests are the homes of its slots that are at home elsewhere.
	guests []int32
}

// failedSearch is what a search was for.
type failedSearch struct {
	give, take int32 // kinds
	gap        int64
	maxCost    int
}

func newFailedSearches(workers int) failedSearches {
	return failedSearches{kinds: make(map[string]int32), of: make([]workerKind, workers), known: make(map[failedSearch]bool)}
}

// changed forgets what a worker has.
func (f *failedSearches) changed(w int32) {
	if f.of != nil {
		f.of[w].kind = 0
	}
}
