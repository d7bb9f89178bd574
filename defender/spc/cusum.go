package spc

import (
	"errors"
	"fmt"
	"math"
)

// CUSUM is a two-sided tabular cumulative sum chart (Montgomery 9.1,
// NIST/SEMATECH 6.3.2.3). K is half the shift to be found, in sigmas. With K 0.5,
// H 4 has an average run length of 168 without a shift and 8.4 at one sigma, H 5
// has 465 and 10.4.
type CUSUM struct {
	K      float64 // reference value in sigmas, 0 or more, usually 0.5
	H      float64 // decision interval in sigmas, above 0, usually 4 or 5
	Target Estimate
	// HeadStart begins both sums at this share of H, 0 to 1, to find a process
	// that starts off target (fast initial response; Lucas and Crosier 1982
	// propose 0.5).
	HeadStart float64
}

// CUSUMPoint is the state after one value. High and Low are the sums upward and
// downward in the unit of the values, both 0 or more.
type CUSUMPoint struct {
	High, Low float64
	// RunHigh and RunLow count the values since the sum was last 0: when it is
	// out, that is how long ago the shift began.
	RunHigh, RunLow int
	OutHigh, OutLow bool
	N               int // values seen
}

// Validate reports every fault of the settings.
func (c CUSUM) Validate() error {
	var errs []error
	if !(c.K >= 0) || math.IsInf(c.K, 0) {
		errs = append(errs, fmt.Errorf("CUSUM: the reference value k is %v sigma, want 0 or more, usually 0.5", c.K))
	}
	if !(c.H > 0) || math.IsInf(c.H, 0) {
		errs = append(errs, fmt.Errorf("CUSUM: the decision interval h is %v sigma, want above 0, usually 4 or 5", c.H))
	}
	if !(c.HeadStart >= 0 && c.HeadStart <= 1) {
		errs = append(errs, fmt.Errorf("CUSUM: the head start is %v of h, want 0 to 1", c.HeadStart))
	}
	if !(c.Target.Sigma >= 0) {
		errs = append(errs, fmt.Errorf("CUSUM: sigma is %v, want 0 or more", c.Target.Sigma))
	}
	return errors.Join(errs...)
}

// Next returns the state after x, given the state before; the zero CUSUMPoint is
// the start. The sums go on after a signal, as a chart is drawn; a reader who
// restarts passes the zero state. A NaN changes nothing.
func (c CUSUM) Next(before CUSUMPoint, x float64) CUSUMPoint {
	if before.N == 0 {
		before.High = c.HeadStart * c.H * c.Target.Sigma
		before.Low = before.High
	}
	if math.IsNaN(x) {
		return before
	}
	d, k, h := x-c.Target.Center, c.K*c.Target.Sigma, c.H*c.Target.Sigma
	p := CUSUMPoint{High: max(0, before.High+d-k), Low: max(0, before.Low-d-k), N: before.N + 1}
	if p.High > 0 {
		p.RunHigh = before.RunHigh + 1
	}
	if p.Low > 0 {
		p.RunLow = before.RunLow + 1
	}
	p.OutHigh, p.OutLow = p.High > h, p.Low > h
	return p
}
