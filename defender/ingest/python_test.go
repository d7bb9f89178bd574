package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/tchart"
)

// sent is what testdata/send.py prints.
type sent struct {
	Answers map[string]Response   `json:"answers"`
	Time    []float64             `json:"time"`
	Step    []int32               `json:"step"`
	Values  map[string][]*float64 `json:"values"`
}

// TestPythonSendsEveryFormat has pandas and PyArrow write what is sent, and compares what is
// stored with what they had, to the bit.
func TestPythonSendsEveryFormat(t *testing.T) {
	t.Parallel()
	python := filepath.Join(component.Tables().Fetch(t), "python", "bin", "python")
	r := startRig(t)
	const token = "0123456789abcdef"
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r.Handler(Access{File: tokens}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.Serve(ctx, r.nc) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	got := send(t, python, strings.TrimPrefix(server.URL, "http://"), token, r.nc.ConnectedUrl())
	formats := []string{"csv", "rows", "columns", "parquet", "arrow-stream", "arrow-file"}
	for _, name := range formats {
		for _, run := range []string{name, "nats-" + name} {
			if answer := got.Answers[run]; answer.Status != 201 {
				t.Errorf("%s is answered by %+v", run, answer)
				continue
			}
			r.compare(t, run, got)
		}
	}
	if again := got.Answers["again"]; again.Status != 200 || again.Receipt == nil || !again.Repeated {
		t.Errorf("the CSV again as Parquet is answered by %+v", again)
	}
	if other := got.Answers["other"]; other.Status != 409 || !strings.Contains(other.Error, `"Pressure" of row 1 was`) {
		t.Errorf("other content is answered by %+v", other)
	}
	if bad := got.Answers["malformed"]; bad.Status != 400 || len(bad.Problems) != 20 || bad.Problems[0].Field != "Pressure" || bad.Problems[0].Row != 1 {
		t.Errorf("text for a sensor is answered by %+v", bad)
	}
	if n := len(r.completions(t)); n != 2*len(formats) {
		t.Errorf("there are %d messages, want one for each of %d runs", n, 2*len(formats))
	}
}

func send(t *testing.T, python string, args ...string) sent {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", "send.py")}, args...)...).Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, failed.Stderr)
	}
	var s sent
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compare compares a stored run with the table that Python had.
func (r *rig) compare(t *testing.T, run string, want sent) {
	t.Helper()
	blob, err := r.store.TChart(t.Context(), defender.TChartKey{Chamber: defender.Chamber{Tool: "etch01", Name: "chamber2"}, Context: run})
	if err != nil {
		t.Fatal(err)
	}
	trace, err := tchart.Decode(blob)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(trace.Time, want.Time) || !reflect.DeepEqual(trace.Step, want.Step) || trace.Lot != "L42" || trace.Wafer != "12" || trace.Recipe != "metal" {
		t.Errorf("%s: the times, steps or labels differ: %+v", run, trace)
	}
	if len(trace.SVIDs) != len(want.Values) {
		t.Fatalf("%s: the sensors are %q", run, trace.SVIDs)
	}
	for i, name := range trace.SVIDs {
		for row, v := range want.Values[name] {
			wanted := math.NaN()
			if v != nil {
				wanted = *v
			}
			// pandas writes JSON records with 15 digits.
			near := run == "rows" || run == "nats-rows"
			if got := trace.Values[i][row]; !same(got, wanted) && !(near && math.Abs(got-wanted) < 1e-11) {
				t.Fatalf("%s: %s of row %d is %v, want %v", run, name, row+1, got, wanted)
			}
		}
	}
}
