package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/nodes/backtest"
)

// traceFile writes a trace of pods that come every ten minutes and run for half an hour.
func traceFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("name,cpu_milli,memory_mib,creation_time,deletion_time,scheduled_time\n")
	for i := range 24 {
		fmt.Fprintf(&b, "p%d,12000,4096,%d,%d,%d\n", i, 600*i, 600*i+1800, 600*i)
	}
	path := filepath.Join(t.TempDir(), "pods.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBacktestPrintsATableAndDrawsAChart(t *testing.T) {
	t.Parallel()
	trace := traceFile(t)
	chart := filepath.Join(t.TempDir(), "chart.svg")
	code, out, errs := muster("nodes", "backtest", "--trace", trace, "--chart", chart, "--instance-types", "m6i.4xlarge", "--sweep", "SIZING=pods-per-node,fit", "--sweep", "PENDING_UP_SEC=60,180")
	if code != command.ExitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"24, 0 of them there", "instance types   m6i.4xlarge", "MAX_WORKERS      100", "waiting p50", "node-hours", "perfect foresight", "pending at the end", "never fitting"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if b, err := os.ReadFile(chart); err != nil || !strings.Contains(string(b), "<svg") {
		t.Errorf("no chart: %v", err)
	}
}

func TestBacktestGivesTheSameJSONForTheSameSeed(t *testing.T) {
	t.Parallel()
	trace := traceFile(t)
	run := func(args ...string) string {
		code, out, errs := muster(append([]string{"nodes", "backtest", "--trace", trace, "--output", "json"}, args...)...)
		if code != command.ExitOK {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		return out
	}
	first := run("--seed", "7")
	if again := run("--seed", "7"); again != first {
		t.Errorf("%s\n%s", first, again)
	}
	var results []backtest.Result
	if err := json.Unmarshal([]byte(first), &results); err != nil || len(results) != 1 || results[0].Pods.Total != 24 || results[0].Pods.Ran != 24 || results[0].Seed != 7 {
		t.Errorf("%v: %+v", err, results)
	}
}

func TestBacktestPlaysThePoolsOfTheSettingsFile(t *testing.T) {
	t.Parallel()
	trace, dir := traceFile(t), t.TempDir()
	settings := func(types string) string {
		path := filepath.Join(dir, types+".yaml")
		text := "SIZING: fit\npools:\n  - {name: first, weight: 1, instanceTypes: [" + types + "], limits: {nodes: 1}}\n  - {name: second, instanceTypes: [m6i.8xlarge]}\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	code, out, errs := muster("nodes", "backtest", "--trace", trace, "--min-workers", "1", "--config", settings("m6i.4xlarge"))
	if code != command.ExitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	for _, want := range []string{"pool first, node-hours", "pool second, node-hours", "instance types   m6i.4xlarge, m6i.8xlarge"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if code, _, errs := muster("nodes", "backtest", "--trace", trace, "--config", settings("m99.large")); code != command.ExitUsage || !strings.Contains(errs, "m99.large") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

func TestBacktestSaysWhatIsWrongAndHowToFixIt(t *testing.T) {
	t.Parallel()
	trace := traceFile(t)
	broken := filepath.Join(t.TempDir(), "broken.csv")
	if err := os.WriteFile(broken, []byte("name,cpu_milli,memory_mib,creation_time,deletion_time,scheduled_time\np,1,1,5,-3,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"no trace", nil, []string{"--trace is missing"}},
		{"a trace that is not there", []string{"--trace", "/nothing.csv"}, []string{"--trace", "/nothing.csv"}},
		{"a broken trace", []string{"--trace", broken}, []string{"broken.csv, line 2, field deletion_time: -3 is negative"}},
		{"all flags wrong", []string{"--trace", trace, "--days", "0", "--from", "-2", "--interval", "0s", "--boot", "1ms", "--spot-share", "2", "--chart", "c.pdf", "--sweep", "CPU_UP"},
			[]string{"--days is 0", "--from is -2", "--interval is 0s", "--boot is 1ms", "--spot-share is 2", "c.pdf", `"CPU_UP" is no sweep`, "choose the busiest days"}},
		{"a window without pods", []string{"--trace", trace, "--from", "5", "--to", "6"}, []string{"no pod is between day 5.00 and 6.00", "the trace is from day 0.00 to 0.18"}},
		{"an unknown type", []string{"--trace", trace, "--instance-types", "m6i.4xlarge,m99.large"}, []string{"m99.large", "INSTANCE_TYPES"}},
		{"a wrong setting", []string{"--trace", trace, "--cpu-up", "7"}, []string{"CPU_UP"}},
		{"a wrong value of a sweep", []string{"--trace", trace, "--sweep", "CPU_UP=0.5,8"}, []string{`CPU_UP="8"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			code, _, stderr := muster(append([]string{"nodes", "backtest"}, c.args...)...)
			if code != command.ExitUsage {
				t.Errorf("exit code %d, want %d; it said %q", code, command.ExitUsage, stderr)
			}
			for _, w := range c.want {
				if !strings.Contains(stderr, w) {
					t.Errorf("the message does not say %q: %s", w, stderr)
				}
			}
		})
	}
}
