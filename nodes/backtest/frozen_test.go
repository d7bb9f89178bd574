package backtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/realdata"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

var freeze = flag.Bool("backtest.freeze", false, "write down how the recorded week is played, in place of comparing it")

// frozenWeek is how the node plane plays the recorded week.
type frozenWeek struct {
	Result Result `json:"result"`
	// Samples is a hash of what every tick has left: nodes, pods that wait, cost.
	Samples string `json:"samplesSHA256"`
}

// TestTheRecordedWeekIsFrozen: a change that is to preserve behaviour leaves every decision
// of the busiest week of the trace as it was. One that isn't writes the files again with
// -backtest.freeze, and its commit says why.
func TestTheRecordedWeekIsFrozen(t *testing.T) {
	t.Parallel()
	f, err := os.Open(realdata.Path(t, "traces/openb_pod_list_cpu250.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	trace, err := ReadTrace("openb", f)
	if err != nil {
		t.Fatal(err)
	}
	week := trace.Busiest(7 * 24 * time.Hour)
	pods, _ := trace.Cut(week)

	for _, sizing := range []nodes.SizingMode{nodes.SizingPodsPerNode, nodes.SizingFit} {
		t.Run(string(sizing), func(t *testing.T) {
			t.Parallel()
			p := nodes.DefaultPolicy()
			p.InstanceTypes, p.MaxWorkers, p.Sizing = DefaultTypes(fit.Shipped(), pods), 100, sizing
			r, err := Run(t.Context(), Config{Trace: trace, Window: week, Policy: p, SpotShare: -1, Spread: 0.3, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			compareWeek(t, filepath.Join("testdata", "week-"+string(sizing)+".json"), r)
		})
	}
}

// compareWeek compares a result with the one that was written down.
func compareWeek(t *testing.T, path string, r Result) {
	t.Helper()
	samples, err := json.Marshal(r.Series)
	if err != nil || len(r.Series) == 0 {
		t.Fatalf("%d samples: %v", len(r.Series), err)
	}
	got, err := json.MarshalIndent(frozenWeek{r, fmt.Sprintf("%x", sha256.Sum256(samples))}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *freeze {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the node plane plays the week otherwise than before:\n%s\nand before:\n%s", got, want)
	}
}
