package analyze_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/internal/realdata"
)

// file writes generated wafers, the last of them faulty, as a trace file.
func file(t *testing.T, normal int, svid string) string {
	t.Helper()
	g := trace.Generator{Seed: 3}
	var b strings.Builder
	write := func(w *trace.Wafer, name string) {
		if b.Len() == 0 {
			fmt.Fprintf(&b, "set,wafer,name,fault,Time,Step Number,%s,%s\n", svid, strings.Join(w.Trace.SVIDs[1:], ","))
		}
		for i := range w.Trace.Time {
			fmt.Fprintf(&b, "s,1,%s,%s,%v,%d", name, w.Fault, w.Trace.Time[i], w.Trace.Step[i])
			for _, column := range w.Trace.Values {
				if math.IsNaN(column[i]) {
					b.WriteString(",")
				} else {
					fmt.Fprintf(&b, ",%v", column[i])
				}
			}
			b.WriteString("\n")
		}
	}
	for i := range normal {
		write(g.Wafer(i), fmt.Sprintf("wafer%02d", i))
	}
	faulty, err := g.FaultyWafer(normal, trace.Faults()[0])
	if err != nil {
		t.Fatal(err)
	}
	write(faulty, "x-faulty")
	name := filepath.Join(t.TempDir(), "gen.csv")
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAFaultyRunIsFoundAndShown(t *testing.T) {
	t.Parallel()
	r, err := analyze.Files(t.Context(), strategy.Default(), []string{file(t, 25, `"<script>alert(1)</script>"`)})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Total; c.Runs != 26 || c.Faults != 1 || c.Detected != 1 || c.Learning != 10 || c.False > 1 {
		t.Errorf("counts are %+v", c)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, want := range []string{"x-faulty", "Hotelling", "<svg", "prefers-color-scheme: dark", "Contributions to"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, bad := range []string{"<script", "src=", "href=", "url(", "NaN", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("the report has %q", bad)
		}
	}
	if n := strings.Count(text, "http"); n != strings.Count(text, `xmlns="http://www.w3.org/2000/svg"`) {
		t.Error("the report refers to other places")
	}
	// Each drawing is well-formed by itself.
	for _, part := range strings.Split(text, "<svg")[1:] {
		d := xml.NewDecoder(strings.NewReader("<svg" + part[:strings.Index(part, "</svg>")+6]))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("a drawing is not well-formed: %v", err)
			}
		}
	}
}

func TestWhatIsWrongWithFilesIsToldAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad, empty := filepath.Join(dir, "bad.csv"), filepath.Join(dir, "empty.csv")
	if err := errors.Join(os.WriteFile(bad, []byte("set,wafer,name,fault,Time,Step Number,a\ns,1,w,,x,1,y\n"), 0o644), os.WriteFile(empty, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	_, err := analyze.Files(t.Context(), strategy.Default(), []string{bad, empty, filepath.Join(dir, "missing.csv")})
	for _, want := range []string{"bad.csv:2", "empty.csv", "missing.csv"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error doesn't tell of %s: %v", want, err)
		}
	}
}

// TestRecordedFaultsByADefenderThatSawNormalWafersFirst analyzes the recorded
// etches in the order of their file: normal wafers, then those with faults, each
// judged by the ones before it with the default strategy.
func TestRecordedFaultsByADefenderThatSawNormalWafersFirst(t *testing.T) {
	t.Parallel()
	r, err := analyze.Files(t.Context(), strategy.Default(), []string{realdata.Path(t, "etch/lam9600_machine.csv")})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Total
	t.Logf("%d of %d faults found, %d false alarms of %d judged normal wafers, %d learning, %d truncated", c.Detected, c.Faults, c.False, c.Normal+c.Alarms-c.Faults, c.Learning, c.BadData)
	if c.Detected < 13 || c.Faults != 14 || c.False > 1 || c.BadData != 2 {
		t.Errorf("counts are %+v, want at least 13 of 14 faults, at most 1 false alarm, 2 truncated", c)
	}
}
