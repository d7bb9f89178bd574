package plan

import "math/bits"

// ranked is an index with what it is sorted by.
type ranked struct {
	key   uint64
	index int32
}

// highestFirst returns the indexes of values from the highest to the lowest, equal ones in order. It
// is a radix sort, from the last digit to the first: with a comparison function sorting would take
// most of the time of a plan.
func highestFirst(values []int64) []int32 {
	if len(values) == 0 {
		return nil
	}
	highest, lowest := values[0], values[0]
	for _, v := range values {
		highest, lowest = max(highest, v), min(lowest, v)
	}

	from, to := make([]ranked, len(values)), make([]ranked, len(values))
	for i, v := range values {
		from[i] = ranked{key: uint64(highest - v), index: int32(i)}
	}
	digit := digitFor(len(values))
	var counts [1 << maxDigit]int32
	for shift := 0; shift < bits.Len64(uint64(highest-lowest)); shift += digit {
		sortByDigit(from, to, shift, counts[:1<<digit])
		from, to = to, from
	}

	order := make([]int32, len(values))
	for i := range from {
		order[i] = from[i].index
	}
	return order
}

const maxDigit = 11

// digitFor is how many bits to sort n values by at a time: a wide digit means few passes, each of
// which goes through the counts of all values of a digit.
func digitFor(n int) int { return min(max(bits.Len(uint(n))-2, 4), maxDigit) }

// sortByDigit copies from to to in order of a digit of the key, which starts at shift and has as many
// values as next has room for. Those of the same digit stay in their order.
func sortByDigit(from, to []ranked, shift int, next []int32) {
	clear(next)
	mask := uint64(len(next) - 1)
	for i := range from {
		next[from[i].key>>shift&mask]++
	}
	at := int32(0)
	for d := range next {
		next[d], at = at, at+next[d]
	}
	for i := range from {
		d := from[i].key >> shift & mask
		to[next[d]] = from[i]
		next[d]++
	}
}
