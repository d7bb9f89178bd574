package handoff

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	ServeIfChild()
	os.Exit(m.Run())
}

// TestMovesLoseNothing moves keys with every contender that is made to, and holds
// it to that; what the others lose is told.
func TestMovesLoseNothing(t *testing.T) {
	load := Load{Rate: 100, Press: 150, Work: 10 * time.Millisecond, WorkSpread: 20 * time.Millisecond, Backlog: 600, Quiet: ackWait + 2*time.Second}
	// Who is held to lose nothing is waited for, as long as the machine may stand
	// still.
	patient := load
	patient.Quiet = time.Minute
	joining := Case{Keys: 96, Slots: 24, Before: 2, After: 3}
	leaving := Case{Keys: 96, Slots: 24, Before: 3, After: 2}
	var turns []Turn
	for _, c := range Contenders() {
		if c.Replicas > 1 {
			continue
		}
		own := patient
		if strings.HasPrefix(c.Name, "filters") || c.Name == "recreated, as pcgroups" {
			own = load
		}
		turns = append(turns, Turn{Case: joining, Contenders: []Contender{c}, Repetitions: 1, Load: own})
		if c.Name == "muster" {
			turns = append(turns, Turn{Case: leaving, Contenders: []Contender{c}, Repetitions: 1, Load: own})
		}
	}
	results, err := Measure(t.Context(), turns, func(r Result, x Run) {
		t.Logf("%s, %d to %d workers: %+v", r.Contender, r.Before, r.After, x)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		f, x := r.Sum(), r.Runs[0]
		if f.Published < 3*r.Keys {
			t.Errorf("%s: %d messages were published for %d keys", r.Contender, f.Published, r.Keys)
		}
		if x.Forced == 0 {
			t.Errorf("%s: no message was forced onto a key that moved", r.Contender)
		}
		if x.Pause.N == 0 {
			t.Errorf("%s: nothing has moved", r.Contender)
		}
		switch r.Contender {
		case "muster", "muster, half the slots", "muster, 4 shards", "muster, 8 shards":
			if f.Lost+f.Concurrent+f.OutOfOrder+x.Stuck > 0 {
				t.Errorf("%s, %d to %d workers: %d lost, %d concurrent, %d out of order, %d stuck", r.Contender, r.Before, r.After, f.Lost, f.Concurrent, f.OutOfOrder, x.Stuck)
			}
		case "recreated, drained first", "franz-go, fake Kafka":
			if f.Lost > 0 {
				t.Errorf("%s: %d lost", r.Contender, f.Lost)
			}
		}
		if r.Contender != "franz-go, fake Kafka" && (x.Drained == 0 || x.Took <= 0) {
			t.Errorf("%s: nothing was drained: %+v", r.Contender, x)
		}
	}
}

// TestEveryModeDrains drains a little in every mode: all comes, and once.
func TestEveryModeDrains(t *testing.T) {
	for _, m := range Modes(16, 1) {
		r, err := MeasureMode(t.Context(), m, 400)
		if err != nil {
			t.Fatal(err)
		}
		if r.Again != 0 || r.Took <= 0 || r.Rate() <= 0 {
			t.Errorf("%v: %+v", m, r)
		}
	}
}
