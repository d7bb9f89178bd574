package spc

import "slices"

// Run returns the states after each value.
func (c CUSUM) Run(xs []float64) []CUSUMPoint {
	points := make([]CUSUMPoint, len(xs))
	var state CUSUMPoint
	for i, x := range xs {
		state = c.Next(state, x)
		points[i] = state
	}
	return points
}

// Out reports whether a sum exceeds the decision interval.
func (p CUSUMPoint) Out() bool { return p.OutHigh || p.OutLow }

// Run returns the states after each value.
func (c EWMA) Run(xs []float64) []EWMAPoint {
	points := make([]EWMAPoint, len(xs))
	var state EWMAPoint
	for i, x := range xs {
		state = c.Next(state, x)
		points[i] = state
	}
	return points
}

// Check returns which rules each value of a series completes.
func (r Rules) Check(zs []float64) []Rules {
	hits := make([]Rules, len(zs))
	var s Runs
	for i, z := range zs {
		hits[i] = s.Next(z, r)
	}
	return hits
}

// RuleNames returns the names of the single rules, such as "nelson-2".
func RuleNames() []string { return slices.Clone(ruleNames[:]) }
