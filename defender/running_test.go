package defender_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/e2e"
	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/local"
)

// TestRecordedWafersThroughTheRunningSystem replays recorded wafers through
// collector, broker and defenders while their number grows, and compares every
// followed wafer's U-chart in the store with one computed from the CSV's text.
func TestRecordedWafersThroughTheRunningSystem(t *testing.T) {
	t.Parallel()
	path := realdata.Path(t, "etch/lam9600_machine.csv")
	dir := t.TempDir()
	r, err := e2e.Run(t.Context(), "scale-up", e2e.Options{Work: 20 * time.Millisecond, Kills: 1, Options: local.Options{
		GroupOptions:   local.GroupOptions{Defenders: 6, Chambers: 60, Slots: 64, Expect: true},
		TrafficOptions: local.TrafficOptions{Rate: 20, Data: filepath.Dir(path)},
		Dir:            dir, Busy: true, Out: io.Discard,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Checks {
		if !c.OK && !c.Timed {
			t.Errorf("%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "fdc.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	naive := readNaively(string(text))
	compared := 0
	for experiment, wafers := range wafersByExperiment(t, string(text)) {
		chamber := replay.Chambers(len(wafersOrder))[wafersOrder[experiment]]
		for n, wafer := range wafers {
			u, err := s.UChart(t.Context(), chamber, fmt.Sprintf("run%06d", n))
			if err != nil {
				t.Fatalf("wafer %s, context %d of %s: %v", wafer, n, chamber, err)
			}
			compared += compare(t, wafer, u.Chart, naive[wafer])
		}
	}
	t.Logf("%d statistics agree", compared)
	if compared < 80*19*8 {
		t.Errorf("only %d statistics were compared", compared)
	}
}

// wafersOrder is the number of the chamber that follows each experiment: they
// are taken in the order of the file.
var wafersOrder = map[string]int{"29": 0, "31": 1}

func wafersByExperiment(t *testing.T, text string) map[string][]string {
	t.Helper()
	r, err := trace.NewReader(strings.NewReader(text), "lam9600_machine.csv")
	if err != nil {
		t.Fatal(err)
	}
	m := map[string][]string{}
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		m[w.Experiment] = append(m[w.Experiment], w.Trace.Context)
	}
	return m
}
