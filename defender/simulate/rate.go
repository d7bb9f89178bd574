package main

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// rate is a share of runs over chambers, whose runs depend on each other.
type rate struct {
	k, n      int
	low, high float64 // 95 % interval
}

// rateOf returns the share over all chambers of k of n of each. The interval is Wilson's
// (1927) for as many independent runs as tell as much: n divided by the design effect, which
// is the variance between chambers over that of independent runs, 1 at least (Rao and
// Scott, "A simple method for the analysis of clustered binary data", Biometrics 48, 1992).
func rateOf(ks, ns []int) rate {
	var r rate
	clusters := 0
	for i := range ks {
		r.k, r.n = r.k+ks[i], r.n+ns[i]
		if ns[i] > 0 {
			clusters++
		}
	}
	if r.n == 0 {
		return r
	}

	share := r.share()
	squares := 0.0
	for i := range ks {
		d := float64(ks[i]) - float64(share*float64(ns[i]))
		squares += float64(d * d)
	}
	effect := 1.0
	if binomial := float64(r.n) * share * (1 - share); binomial > 0 && clusters > 1 {
		effect = max(1, squares*float64(clusters)/float64(clusters-1)/binomial)
	}
	r.low, r.high = wilson(share, float64(r.n)/effect)
	return r
}

// wilson returns the 95 % interval of a share of n runs.
func wilson(share, n float64) (low, high float64) {
	z := distuv.UnitNormal.Quantile(0.975)
	center := (share + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(share*(1-share)/n+z*z/(4*n*n))
	return max(center-half, 0), min(center+half, 1)
}

func (r rate) share() float64 { return float64(r.k) / float64(r.n) }

// String is in percent.
func (r rate) String() string {
	if r.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100*r.share())
}

// interval is in percent.
func (r rate) interval() string {
	if r.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f to %.1f", 100*r.low, 100*r.high)
}
