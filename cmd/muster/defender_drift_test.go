package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
)

func TestAnalyzeTellsOfDrift(t *testing.T) {
	t.Parallel()
	const sensors, runs, rows = 8, 120, 20
	rng := rand.New(rand.NewPCG(3, 5))
	var b strings.Builder
	b.WriteString("name,Time,Step Number")
	for s := range sensors {
		fmt.Fprintf(&b, ",S%d", s)
	}
	b.WriteString("\n")
	levels := make([]float64, sensors)
	for run := range runs {
		for s := range levels {
			levels[s] += 0.3 * rng.NormFloat64()
		}
		of := make([]float64, sensors)
		for s := range of {
			of[s] = 100 + levels[s] + rng.NormFloat64()
		}
		for row := range rows {
			fmt.Fprintf(&b, "r%03d,%d,1", run, row)
			for _, level := range of {
				fmt.Fprintf(&b, ",%.3f", level+0.2*rng.NormFloat64())
			}
			b.WriteString("\n")
		}
	}
	name := filepath.Join(t.TempDir(), "walk.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "report.html")
	code, out, errs := muster("defender", "analyze", name, "--html", page)
	if code != command.ExitOK || !strings.Contains(out, "\nGroup \"walk\", by run r119, has drifted since Phase I: S") {
		t.Errorf("exit code %d, no drift is told:\n%s%s", code, out, errs)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "(drifted since Phase I: S") {
		t.Errorf("the page tells of no drift: %v", err)
	}
}
