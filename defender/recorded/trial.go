package main

import (
	"math"
	"slices"

	"github.com/muster-dev/muster/defender/classify"
)

// A method names the fault of a wafer by labelled ones; empty if it is unknown.
type method struct {
	name string
	// prepare gets the labelled wafers and normal ones of their experiments.
	prepare func(labelled, normal []wafer) func(wafer) answer
}

// answer is what a method says of a wafer.
type answer struct {
	fault      string // empty: unknown
	confidence float64
	nearest    string
	similarity float64
}

// A trial has some wafers named by others.
type trial struct {
	name    string
	results []result
}

type result struct {
	wafer  wafer
	known  bool // the library has its fault, in either direction
	answer answer
}

// crossed names the faults of one experiment by those of the other.
func crossed(m method, library, judged experiment) trial {
	t := trial{name: "labels of " + library.name + ", faults of " + judged.name}
	name := m.prepare(library.faulty, library.normal)
	for _, w := range judged.faulty {
		t.results = append(t.results, result{w, knows(library.faulty, w), name(w)})
	}
	return t
}

// leaveOneOut names each fault of both experiments by all the others.
func leaveOneOut(m method, experiments []experiment) trial {
	t := trial{name: "leave one out, both"}
	var faulty, normal []wafer
	for _, e := range experiments {
		faulty, normal = append(faulty, e.faulty...), append(normal, e.normal...)
	}
	for i, w := range faulty {
		others := slices.Delete(slices.Clone(faulty), i, i+1)
		t.results = append(t.results, result{w, knows(others, w), m.prepare(others, normal)(w)})
	}
	return t
}

// knows reports whether a wafer's fault is among the labelled ones, in either direction.
func knows(labelled []wafer, w wafer) bool {
	return slices.ContainsFunc(labelled, func(l wafer) bool { return l.fault() == w.fault() || l.fault() == w.opposite() })
}

// methods are this rule and what it is compared with.
func methods() []method {
	return []method{
		{"nearest raw features", nearestRaw(false)},
		{"nearest raw features, scaled", nearestRaw(true)},
		{"nearest deviations", nearestDeviations},
		{"this rule without reversed faults", bySignature(false)},
		{"**this rule**", bySignature(true)},
	}
}

// bySignature is package classify.
func bySignature(reversed bool) func(labelled, normal []wafer) func(wafer) answer {
	return func(labelled, _ []wafer) func(wafer) answer {
		var cases []classify.Case
		for _, w := range labelled {
			cases = append(cases, w.asCase())
		}
		library := classify.New(cases)
		return func(w wafer) answer {
			m := library.Classify(w.signature)
			if m == nil {
				return answer{}
			}
			if n := m.Nearest[0]; !m.Unknown() && !reversed && !sameDirection(labelled, n.Run, m.Fault) {
				return answer{}
			}
			return answer{m.Fault, m.Confidence, m.Nearest[0].Run, m.Nearest[0].Similarity}
		}
	}
}

// sameDirection reports whether the labelled run has that very fault.
func sameDirection(labelled []wafer, run, fault string) bool {
	return slices.ContainsFunc(labelled, func(w wafer) bool { return w.name == run && w.fault() == fault })
}

// nearestRaw takes raw features, scaled by normal wafers of the library or as they are.
func nearestRaw(scaled bool) func(labelled, normal []wafer) func(wafer) answer {
	return func(labelled, normal []wafer) func(wafer) answer {
		_, units := scales(normal)
		if !scaled {
			for i := range units {
				units[i] = 1
			}
		}
		return func(w wafer) answer {
			return nearest(labelled, func(l *wafer) float64 { return distance(w.features, l.features, units) })
		}
	}
}

// nearestDeviations takes the same features as deviations from the normal wafers of each
// wafer's own experiment.
func nearestDeviations(labelled, _ []wafer) func(wafer) answer {
	return func(w wafer) answer {
		return nearest(labelled, func(l *wafer) float64 { return distance(w.deviations, l.deviations, nil) })
	}
}

// nearest takes the fault of the labelled wafer at the smallest distance. It knows no unknown
// faults.
func nearest(labelled []wafer, distance func(*wafer) float64) answer {
	best, least := answer{}, math.Inf(1)
	for i := range labelled {
		l := &labelled[i]
		if d := distance(l); d < least {
			best, least = answer{fault: l.fault(), nearest: l.name}, d
		}
	}
	return best
}

// distance is Euclid's, squared; without units all are 1.
func distance(xs, ys, units []float64) float64 {
	squares := 0.0
	for i, x := range xs {
		d := x - ys[i]
		if units != nil {
			d /= units[i]
		}
		squares += float64(d * d)
	}
	return squares
}

// scales returns means and standard deviations of features over normal wafers. These are
// infinite where a feature doesn't vary, which leaves it out.
func scales(normal []wafer) (means, deviations []float64) {
	means, deviations = make([]float64, len(normal[0].features)), make([]float64, len(normal[0].features))
	for i := range means {
		squares := 0.0
		for _, w := range normal {
			means[i] += w.features[i] / float64(len(normal))
		}
		for _, w := range normal {
			squares += float64((w.features[i] - means[i]) * (w.features[i] - means[i]))
		}
		if deviations[i] = math.Sqrt(squares / float64(len(normal)-1)); deviations[i] == 0 {
			deviations[i] = math.Inf(1)
		}
	}
	return means, deviations
}

// score counts the results of a trial.
type score struct {
	known, right, wrong, unknown int // of faults that the library has
	aside                        int // right but for the direction
	novel, recognized            int // faults that it lacks, and those of them called unknown
}

func (t *trial) score() score {
	var s score
	for _, r := range t.results {
		switch {
		case !r.known:
			s.novel++
			if r.answer.fault == "" {
				s.recognized++
			}
			continue
		case r.answer.fault == "":
			s.unknown++
		case r.answer.fault == r.wafer.fault():
			s.right++
		case r.answer.fault == r.wafer.opposite():
			s.aside++
			s.wrong++
		default:
			s.wrong++
		}
		s.known++
	}
	return s
}
