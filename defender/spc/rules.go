package spc

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Rules is a set of run rules, on standardized values z = (x-center)/sigma.
type Rules uint16

// The tests for special causes of Nelson (1984), by his numbers, and the four
// zone rules of the Western Electric handbook (1956, part B), which are the same
// patterns with other run lengths.
const (
	Nelson1 Rules = 1 << iota // one value beyond 3 sigma
	Nelson2                   // nine in a row on one side of the center
	Nelson3                   // six in a row steadily rising or falling
	Nelson4                   // fourteen in a row alternating up and down
	Nelson5                   // two out of three in a row beyond 2 sigma on one side
	Nelson6                   // four out of five in a row beyond 1 sigma on one side
	Nelson7                   // fifteen in a row within 1 sigma
	Nelson8                   // eight in a row beyond 1 sigma, on either side
	WE1                       // one value beyond 3 sigma
	WE2                       // two out of three in a row beyond 2 sigma on one side
	WE3                       // four out of five in a row beyond 1 sigma on one side
	WE4                       // eight in a row on one side of the center

	// Nelson is all of Nelson's tests, WesternElectric all zone rules.
	Nelson          = Nelson1 | Nelson2 | Nelson3 | Nelson4 | Nelson5 | Nelson6 | Nelson7 | Nelson8
	WesternElectric = WE1 | WE2 | WE3 | WE4
)

var ruleNames = [...]string{
	"nelson-1", "nelson-2", "nelson-3", "nelson-4", "nelson-5", "nelson-6", "nelson-7", "nelson-8",
	"western-electric-1", "western-electric-2", "western-electric-3", "western-electric-4",
}

// ParseRules returns the set of the named rules; "nelson" and "western-electric"
// name all of theirs.
func ParseRules(names ...string) (Rules, error) {
	var set Rules
	for _, name := range names {
		switch i := slices.Index(ruleNames[:], name); {
		case i >= 0:
			set |= 1 << i
		case name == "nelson":
			set |= Nelson
		case name == "western-electric":
			set |= WesternElectric
		default:
			return 0, fmt.Errorf("unknown rule %q, want nelson, western-electric or one of %s", name, strings.Join(ruleNames[:], ", "))
		}
	}
	return set, nil
}

// Names returns the names of the rules in the set.
func (r Rules) Names() []string {
	var names []string
	for i, name := range ruleNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String returns the names, joined by commas.
func (r Rules) String() string { return strings.Join(r.Names(), ",") }

// Runs applies rules to a series, value by value. The zero value is the start of
// a series. A value on the center line is on neither side; equal neighbours end a
// trend; NaN is a hole, and no pattern reaches across it. A pattern that goes on
// is reported at each value that completes it again.
type Runs struct {
	last                     float64
	n                        int // values since the last hole
	side, eight              int // length of the run on one side (signed), and beyond 1 sigma
	trend, alternating       int
	within                   int
	lastDirection            int
	high2, low2, high1, low1 uint8 // one bit for each of the last values, newest lowest
}

// Next returns which of the rules the value completes.
func (s *Runs) Next(z float64, rules Rules) Rules {
	if math.IsNaN(z) {
		*s = Runs{}
		return 0
	}
	s.update(z)
	// The newest value must be part of an m-out-of-n pattern, or the pattern was
	// complete before and is only still in sight.
	beyond := func(high, low uint8, m, n int) bool {
		return high&1 == 1 && ones(high, n) >= m || low&1 == 1 && ones(low, n) >= m
	}
	var hit Rules
	add := func(rule Rules, holds bool) {
		if holds {
			hit |= rule
		}
	}
	add(Nelson1|WE1, math.Abs(z) > 3)
	add(Nelson2, abs(s.side) >= 9)
	add(WE4, abs(s.side) >= 8)
	add(Nelson3, s.trend >= 6)
	add(Nelson4, s.alternating >= 14)
	add(Nelson5|WE2, beyond(s.high2, s.low2, 2, 3))
	add(Nelson6|WE3, beyond(s.high1, s.low1, 4, 5))
	add(Nelson7, s.within >= 15)
	add(Nelson8, s.eight >= 8)
	return hit & rules
}

func (s *Runs) update(z float64) {
	switch {
	case z > 0:
		s.side = max(s.side, 0) + 1
	case z < 0:
		s.side = min(s.side, 0) - 1
	default:
		s.side = 0
	}
	direction := 0
	if s.n > 0 {
		direction = sign(z - s.last)
	}
	// trend and alternating count values, not steps between them.
	switch direction {
	case 0:
		s.trend, s.alternating = 1, 1
	case s.lastDirection:
		s.trend++
		s.alternating = 2
	default:
		s.trend = 2
		if s.lastDirection == 0 {
			s.alternating = 2
		} else {
			s.alternating++
		}
	}
	s.lastDirection = direction
	if math.Abs(z) > 1 {
		s.within, s.eight = 0, s.eight+1
	} else {
		s.within, s.eight = s.within+1, 0
	}
	s.high2, s.low2 = push(s.high2, z > 2), push(s.low2, z < -2)
	s.high1, s.low1 = push(s.high1, z > 1), push(s.low1, z < -1)
	s.last = z
	s.n++
}

func push(bits uint8, b bool) uint8 {
	bits <<= 1
	if b {
		bits |= 1
	}
	return bits
}

func ones(bits uint8, n int) int {
	count := 0
	for i := range n {
		count += int(bits >> i & 1)
	}
	return count
}

func abs(n int) int { return max(n, -n) }

func sign(x float64) int {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}
