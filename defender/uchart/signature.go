package uchart

import (
	"cmp"
	"math"
	"slices"
)

// Level is how far the level of an SVID lies from its mean over earlier contexts, in
// standard deviations over them, signed; the mean of its steps.
type Level struct {
	SVID   string  `json:"svid"`
	Sigmas float64 `json:"sigmas"`
}

// maxLevels is how many levels a signature has. Of more SVIDs those that deviate least,
// which tell least, are left out.
const maxLevels = 64

// usual is where a variable lies in the contexts that a model is trained on.
type usual struct{ mean, deviation float64 }

func usualOf(runs [][]float64, variables int) []usual {
	list := make([]usual, variables)
	for j := range list {
		u := &list[j]
		for _, run := range runs {
			u.mean += run[j] / float64(len(runs))
		}
		squares := 0.0
		for _, run := range runs {
			squares += float64((run[j] - u.mean) * (run[j] - u.mean))
		}
		u.deviation = math.Sqrt(squares / float64(len(runs)-1))
	}
	return list
}

// signature returns the levels of a run, the largest first.
//
//   - Steps are averaged, so that faults in recipes with other steps can be compared.
//   - Standard deviations within steps are left out: they grow in whichever direction a
//     sensor is off, so a fault and its opposite would look alike.
//   - What courses lead to expect isn't taken off. A sensor that wanders is little off in
//     units that include how it wanders, and very far off in those of its last step.
func (t *trained) signature(run []float64) []Level {
	var levels []Level
	for j := 0; j < len(t.variables); {
		svid, sum, n := t.variables[j].svid, 0.0, 0
		for ; j < len(t.variables) && t.variables[j].svid == svid; j++ { // they are ordered by SVID
			if u := t.usual[j]; t.variables[j].stat == Mean && u.deviation > 0 {
				sum += (run[j] - u.mean) / u.deviation
				n++
			}
		}
		if level := sum / float64(n); n > 0 && level != 0 && math.Abs(level) <= math.MaxFloat64 {
			levels = append(levels, Level{SVID: t.names.SVIDs[svid], Sigmas: level})
		}
	}
	slices.SortStableFunc(levels, func(a, b Level) int { return cmp.Compare(math.Abs(b.Sigmas), math.Abs(a.Sigmas)) })
	return slices.Clip(levels[:min(len(levels), maxLevels)])
}
