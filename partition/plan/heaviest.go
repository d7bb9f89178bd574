package plan

import "math/bits"

// weighed is a slot with what it is sorted by.
type weighed struct {
	key  uint64
	slot int32
}

// heaviestFirst returns the slots from heavy to light, equal ones by number. It is a radix sort,
// from the last digit to the first: comparing slots would take most of the time of a plan.
func heaviestFirst(weight []int64) []int32 {
	heaviest, lightest := int64(0), int64(0)
	if len(weight) > 0 {
		heaviest, lightest = weight[0], weight[0]
	}
	for _, w := range weight {
		heaviest, lightest = max(heaviest, w), min(lightest, w)
	}

	from, to := make([]weighed, len(weight)), make([]weighed, len(weight))
	for s, w := range weight {
		from[s] = weighed{key: uint64(heaviest - w), slot: int32(s)}
	}
	digit := digitFor(len(weight))
	for shift := 0; shift < bits.Len64(uint64(heaviest-lightest)); shift += digit {
		sortByDigit(from, to, shift, digit)
		from, to = to, from
	}

	order := make([]int32, len(weight))
	for i := range from {
		order[i] = from[i].slot
	}
	return order
}

const maxDigit = 11

// digitFor is how many bits to sort n slots by at a time: a wide digit means few passes, each of
// which goes through the counts of all values of a digit.
func digitFor(n int) int { return min(max(bits.Len(uint(n))-2, 4), maxDigit) }

// sortByDigit copies from to to in order of the digit of the key at shift. Slots of the same digit
// stay in their order.
func sortByDigit(from, to []weighed, shift, digit int) {
	var next [1 << maxDigit]int32
	mask := uint64(1)<<digit - 1
	for i := range from {
		next[from[i].key>>shift&mask]++
	}
	at := int32(0)
	for d := range next[:mask+1] {
		next[d], at = at, at+next[d]
	}
	for i := range from {
		d := from[i].key >> shift & mask
		to[next[d]] = from[i]
		next[d]++
	}
}
