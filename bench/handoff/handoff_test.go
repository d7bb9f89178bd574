package handoff

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/component"
)

func TestMain(m *testing.M) {
	ServeIfChild()
	os.Exit(m.Run())
}

// TestMovesLoseNothing moves keys with every contender on NATS that is made to, has workers
// crash, and holds it to that; what the others lose is told.
func TestMovesLoseNothing(t *testing.T) {
	for _, c := range Contenders() {
		if c.in(1, defaultSync) && c.kafka == nil {
			t.Run(c.Name, func(t *testing.T) { movesLoseNothing(t, c) })
		}
	}
}

// TestMovesOnKafkaLoseNothing does the same on a real broker, if one can be had, with the protocol
// of KIP-848.
func TestMovesOnKafkaLoseNothing(t *testing.T) {
	component.Kafka().Fetch(t)
	for _, c := range Contenders() {
		if c.in(1, defaultSync) && c.kafka != nil && c.kafka.next && !c.slow() {
			t.Run(c.Name, func(t *testing.T) { movesLoseNothing(t, c) })
		}
	}
}

func movesLoseNothing(t *testing.T, c Contender) {
	load := Load{Rate: 100, Press: 150, Work: 10 * time.Millisecond, WorkSpread: 20 * time.Millisecond, Backlog: 600, Crash: 500 * time.Millisecond, Quiet: ackWait + 2*time.Second}
	mayLose := strings.HasPrefix(c.Name, "filters") || c.Name == "recreated, as pcgroups"
	if !mayLose {
		load.Quiet = time.Minute // as long as the machine may stand still
	}
	joining := Case{Keys: 96, Slots: 24, Before: 2, After: 3}
	turns := []Turn{{Case: joining, Contenders: []Contender{c}, Repetitions: 1, Load: load}}
	if c.Name == "muster" {
		leaving := Case{Keys: 96, Slots: 24, Before: 3, After: 2}
		turns = append(turns, Turn{Case: leaving, Contenders: []Contender{c}, Repetitions: 1, Load: load})
	}
	results, err := Measure(t.Context(), turns, func(r Result, x Run) {
		t.Logf("%d to %d workers: %+v", r.Before, r.After, x)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		checkMoves(t, c, r, mayLose)
	}
}

func checkMoves(t *testing.T, c Contender, r Result, mayLose bool) {
	t.Helper()
	f, x := r.Sum(), r.Runs[0]
	if f.Lost > 0 && !mayLose {
		t.Errorf("%d messages are lost", f.Lost)
	}
	if f.Published < r.Load.Backlog {
		t.Errorf("%d messages were published", f.Published)
	}
	if x.Drained == 0 || x.Took <= 0 || x.Filled <= 0 {
		t.Errorf("nothing was drained: %+v", x)
	}
	if c.static {
		return
	}
	if x.Forced == 0 {
		t.Error("no message was forced onto a key that moved")
	}
	if x.Pause.N == 0 {
		t.Error("nothing has moved")
	}
	if strings.HasPrefix(c.Name, "muster") && f.Concurrent+f.OutOfOrder > 0 {
		t.Errorf("%d messages are concurrent, %d out of order", f.Concurrent, f.OutOfOrder)
	}
	if ours := strings.HasPrefix(c.Name, "muster"); (ours || c.kafka != nil) && x.Takeover.N == 0 {
		t.Error("nothing was taken over")
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
