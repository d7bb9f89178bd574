package partition

import "testing"

// TestSuspects: after a takeover, only what was in the stream before may have been begun by the
// owner before, and at most as much of it as may be in flight.
func TestSuspects(t *testing.T) {
	t.Parallel()
	type coming struct {
		sequence, behind uint64
		suspect          bool
	}
	for name, tt := range map[string]struct {
		inFlight int
		come     []coming
	}{
		"nobody had the slot before":              {0, []coming{{1, 5, false}, {2, 4, false}}},
		"the stream was empty":                    {3, []coming{{7, 0, true}, {8, 0, false}, {9, 5, false}}},
		"two were behind the first":               {5, []coming{{7, 2, true}, {9, 4, true}, {12, 3, true}, {13, 2, false}}},
		"more wait than may be in flight":         {2, []coming{{7, 9, true}, {8, 8, true}, {9, 7, false}}},
		"one comes late, and none for it":         {9, []coming{{8, 1, true}, {9, 0, true}, {7, 0, true}, {10, 0, false}}},
		"the first is returned, and comes again":  {9, []coming{{7, 1, true}, {7, 1, true}, {8, 0, true}, {9, 0, false}}},
		"the stream is another one, from 1 again": {9, []coming{{7, 0, true}, {1, 0, true}, {8, 0, false}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := suspects{left: tt.inFlight}
			for _, c := range tt.come {
				m := &mail{original: original{sequence: c.sequence}, behind: c.behind}
				s.came(m)
				if got := s.begins(m); got != c.suspect {
					t.Errorf("message %d: suspect %t, want %t", c.sequence, got, c.suspect)
				}
			}
		})
	}
}
