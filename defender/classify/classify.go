package classify

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/muster-dev/muster/defender/uchart"
)

// Case is a run whose fault is known.
type Case struct {
	Run   string // names it to a person
	Fault string
	// Opposite is the name of the fault whose sensors are off in the other direction; empty if
	// it has no name of its own.
	Opposite  string
	Signature []uchart.Level
}

// Match is what a library says of a run.
type Match struct {
	// Fault is that of the most similar case; empty if none is similar enough, so that the
	// fault is unknown.
	Fault string `json:"fault,omitempty"`
	// Reversed is set if that case is off in the other direction, and the opposite of its
	// fault has no name.
	Reversed bool `json:"reversed,omitempty"`
	// Confidence is the share, from 0 to 1, that the conclusion has beside other faults and
	// the possibility that the fault is unknown. It isn't a measured frequency.
	Confidence float64 `json:"confidence"`
	// Nearest are the most similar cases, at most maxNearest, the most similar first.
	Nearest []Neighbor `json:"nearest,omitempty"`
}

// Neighbor is a case that a run was compared with.
type Neighbor struct {
	Run        string  `json:"run"`
	Fault      string  `json:"fault"`
	Reversed   bool    `json:"reversed,omitempty"` // as in [Match]
	Similarity float64 `json:"similarity"`         // cosine of the signatures, from 0 to 1
}

const (
	maxNearest = 3
	// A run that is less similar to every case has an unknown fault.
	minSimilarity = 0.6
	// How many times as likely a fault is when its similarity is larger by 0.1: exp(1).
	sharpness = 10
)

// Unknown reports whether the fault is none of the library's.
func (m *Match) Unknown() bool { return m.Fault == "" }

// String names the conclusion in a few words, such as "chuck leak, reversed" or "unknown".
func (m *Match) String() string {
	if m.Unknown() {
		return "unknown"
	}
	return named(m.Fault, m.Reversed)
}

// String names the case's fault in the direction of the run.
func (n Neighbor) String() string { return named(n.Fault, n.Reversed) }

func named(fault string, reversed bool) string {
	if reversed {
		return fault + ", reversed"
	}
	return fault
}

// Library compares runs with cases. It is immutable and safe for concurrent use.
type Library struct{ known []known }

type known struct {
	Case
	profile
}

// New returns a library of the cases that have a signature.
func New(cases []Case) *Library {
	l := &Library{}
	for _, c := range cases {
		if p := profileOf(c.Signature); p.norm > 0 {
			l.known = append(l.known, known{c, p})
		}
	}
	return l
}

// Without returns the library without the cases of a run.
func (l *Library) Without(run string) *Library {
	return &Library{known: slices.DeleteFunc(slices.Clone(l.known), func(k known) bool { return k.Run == run })}
}

// Size returns how many cases the library compares with.
func (l *Library) Size() int { return len(l.known) }

// Classify names the fault of a run with this signature; nil if there is nothing to compare,
// in the run or in the library.
func (l *Library) Classify(signature []uchart.Level) *Match {
	p := profileOf(signature)
	if p.norm == 0 || len(l.known) == 0 {
		return nil
	}
	neighbors := make([]Neighbor, len(l.known))
	for i := range l.known {
		neighbors[i] = l.known[i].neighbor(p)
	}
	slices.SortFunc(neighbors, func(a, b Neighbor) int {
		return cmp.Or(cmp.Compare(b.Similarity, a.Similarity), strings.Compare(a.Fault, b.Fault), strings.Compare(a.Run, b.Run))
	})

	m := &Match{Confidence: confidence(neighbors), Nearest: slices.Clone(neighbors[:min(len(neighbors), maxNearest)])}
	if best := neighbors[0]; best.Similarity >= minSimilarity {
		m.Fault, m.Reversed = best.Fault, best.Reversed
	}
	return m
}

// neighbor compares a run with the case, in the direction in which they are more similar.
func (k *known) neighbor(run profile) Neighbor {
	n := Neighbor{Run: k.Run, Fault: k.Fault, Similarity: run.cosine(k.profile)}
	if n.Similarity >= 0 {
		return n
	}
	n.Similarity = -n.Similarity
	if n.Reversed = k.Opposite == ""; !n.Reversed {
		n.Fault = k.Opposite
	}
	return n
}

// confidence is the share of the first neighbor's fault, or of none if that isn't similar
// enough. A fault counts by its most similar case, so that many labels of one don't outvote a
// better match.
func confidence(neighbors []Neighbor) float64 {
	weight := func(similarity float64) float64 { return math.Exp(sharpness * (similarity - 1)) }
	type fault struct {
		name     string
		reversed bool
	}
	seen := map[fault]bool{}
	unknown := weight(minSimilarity)
	all := unknown
	for _, n := range neighbors {
		if f := (fault{n.Fault, n.Reversed}); !seen[f] {
			seen[f] = true
			all += weight(n.Similarity)
		}
	}
	return max(weight(neighbors[0].Similarity), unknown) / all
}

// profile is a signature as it is compared: logarithms of levels, ordered by SVID.
type profile struct {
	levels []uchart.Level
	norm   float64
}

func profileOf(signature []uchart.Level) profile {
	p := profile{levels: make([]uchart.Level, 0, len(signature))}
	for _, l := range signature {
		if math.IsNaN(l.Sigmas) || math.IsInf(l.Sigmas, 0) {
			continue // a verdict has none
		}
		p.levels = append(p.levels, uchart.Level{SVID: l.SVID, Sigmas: math.Copysign(math.Log1p(math.Abs(l.Sigmas)), l.Sigmas)})
	}
	slices.SortStableFunc(p.levels, func(a, b uchart.Level) int { return strings.Compare(a.SVID, b.SVID) })
	squares := 0.0
	for _, l := range p.levels {
		squares += float64(l.Sigmas * l.Sigmas)
	}
	p.norm = math.Sqrt(squares)
	return p
}

// cosine is that of the angle between two profiles. A sensor that one of them lacks counts as
// one that is where it should be.
func (p profile) cosine(q profile) float64 {
	product := 0.0
	for i, j := 0, 0; i < len(p.levels) && j < len(q.levels); {
		switch strings.Compare(p.levels[i].SVID, q.levels[j].SVID) {
		case -1:
			i++
		case 1:
			j++
		default:
			product += float64(p.levels[i].Sigmas * q.levels[j].Sigmas)
			i, j = i+1, j+1
		}
	}
	return max(-1, min(product/(p.norm*q.norm), 1))
}
