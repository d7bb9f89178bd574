package spc

import (
	"errors"
	"fmt"
	"math"
)

// EWMA is an exponentially weighted moving average chart (Montgomery 9.2,
// NIST/SEMATECH 6.3.2.4, Lucas and Saccucci 1990): z = Lambda x + (1-Lambda) z.
// Small Lambda finds small lasting shifts. For an average run length of 500
// without a shift, Lambda 0.1, 0.2 and 0.4 go with L 2.814, 2.962 and 3.054.
type EWMA struct {
	Lambda float64 // weight of the newest value, above 0 and at most 1
	L      float64 // width of the limits in standard deviations of z, above 0
	Target Estimate
	// Asymptotic uses the limits of a long series from the first value on, as the
	// NIST handbook does; else they are narrower at the beginning, where z has
	// less variation.
	Asymptotic bool
}

// EWMAPoint is the state after one value.
type EWMAPoint struct {
	Z      float64
	Limits Limits
	Out    bool
	// N counts the values seen since the start.
	N int
}

// Validate reports every fault of the settings.
func (c EWMA) Validate() error {
	var errs []error
	if !(c.Lambda > 0 && c.Lambda <= 1) {
		errs = append(errs, fmt.Errorf("EWMA: lambda is %v, want above 0 and at most 1, usually 0.05 to 0.4", c.Lambda))
	}
	if !(c.L > 0) || math.IsInf(c.L, 0) {
		errs = append(errs, fmt.Errorf("EWMA: the width L is %v, want above 0, usually 2.5 to 3.1", c.L))
	}
	if !(c.Target.Sigma >= 0) {
		errs = append(errs, fmt.Errorf("EWMA: sigma is %v, want 0 or more", c.Target.Sigma))
	}
	return errors.Join(errs...)
}

// Next returns the state after x, given the state before; the zero EWMAPoint is
// the start, at the center. A NaN changes nothing and isn't out.
func (c EWMA) Next(before EWMAPoint, x float64) EWMAPoint {
	if before.N == 0 {
		before.Z = c.Target.Center
	}
	p := EWMAPoint{Z: before.Z, N: before.N, Limits: before.Limits}
	if math.IsNaN(x) {
		return p
	}
	p.N++
	p.Z = float64(c.Lambda*x) + float64((1-c.Lambda)*before.Z)
	share := c.Lambda / (2 - c.Lambda)
	if !c.Asymptotic {
		share *= 1 - math.Pow(1-c.Lambda, 2*float64(p.N))
	}
	p.Limits = c.Target.Limits(c.L * math.Sqrt(share))
	p.Out = p.Limits.Outside(p.Z)
	return p
}
