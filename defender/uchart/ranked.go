package uchart

import "slices"

// ranked returns what xs[k] would be if xs were sorted. Afterwards nothing before k is larger,
// and nothing behind it smaller. It is Hoare's FIND ("Algorithm 65", Communications of the ACM
// 4, 1961), which takes about half as long as sorting. xs has no NaN.
func ranked(xs []float64, k int) float64 {
	from, to := 0, len(xs)-1
	for to-from > 12 {
		pivot := xs[k]
		i, j := from, to
		for i <= j {
			for xs[i] < pivot {
				i++
			}
			for pivot < xs[j] {
				j--
			}
			if i <= j {
				xs[i], xs[j] = xs[j], xs[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			to = j
		case k >= i:
			from = i
		default:
			return pivot // all between j and i equal it
		}
	}
	slices.Sort(xs[from : to+1]) // no more of it is out of place
	return xs[k]
}
