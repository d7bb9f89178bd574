package partition

import "testing"

// TestSlotStanding decides on requests.
func TestSlotStanding(t *testing.T) {
	held := slotStanding{valid: true, held: true, started: true, fence: Fence{7, 3}}
	with := func(change func(*slotStanding)) slotStanding {
		s := held
		change(&s)
		return s
	}
	for name, tt := range map[string]struct {
		standing slotStanding
		known    Fence
		want     requestVerdict
	}{
		"the owner serves": {held, Fence{7, 3}, serveRequest},
		"the owner serves a caller with an older map":         {held, Fence{6, 9}, serveRequest},
		"the owner serves a caller that knows no fence":       {held, Fence{}, serveRequest},
		"the owner waits for the fence of a newer map":        {held, Fence{8, 3}, requestWaits},
		"the owner waits for the fence of a later claim":      {held, Fence{7, 4}, requestWaits},
		"without a valid lease it is refused":                 {with(func(s *slotStanding) { s.valid = false }), Fence{7, 3}, requestUnsure},
		"without a valid lease no slot is waited for":         {slotStanding{}, Fence{7, 3}, requestUnsure},
		"a slot that is handed off is another worker's":       {with(func(s *slotStanding) { s.handsOff = true }), Fence{7, 3}, requestMoved},
		"a slot that is handed off may come back":             {with(func(s *slotStanding) { s.handsOff = true }), Fence{9, 3}, requestWaits},
		"a holding that has not started is waited for":        {with(func(s *slotStanding) { s.started = false }), Fence{7, 3}, requestWaits},
		"a former owner refuses":                              {slotStanding{valid: true, fence: Fence{7, 3}}, Fence{7, 3}, requestMoved},
		"a former owner refuses a caller without a fence":     {slotStanding{valid: true, fence: Fence{7, 3}}, Fence{}, requestMoved},
		"a former owner waits to be the owner again":          {slotStanding{valid: true, fence: Fence{7, 3}}, Fence{9, 3}, requestWaits},
		"a next owner waits for its slot":                     {slotStanding{valid: true}, Fence{7, 3}, requestWaits},
		"a worker without the slot refuses one without fence": {slotStanding{valid: true}, Fence{}, requestMoved},
	} {
		if got := tt.standing.decide(tt.known); got != tt.want {
			t.Errorf("%s: got verdict %d, want %d", name, got, tt.want)
		}
	}
}
