package analyze_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/internal/realdata"
)

// run returns the run of that name.
func run(t *testing.T, r *analyze.Report, name string) *analyze.Run {
	t.Helper()
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			if run.Context == name {
				return run
			}
		}
	}
	t.Fatalf("there is no run %s", name)
	return nil
}

func TestAlarmsAreComparedWithLabelledRuns(t *testing.T) {
	t.Parallel()
	name := file(t, 40, "first")
	library, err := files(t.Context(), strategy.Default(), []string{name})
	if err != nil {
		t.Fatal(err)
	}
	library.Classify(nil)
	if m := run(t, library, "x-faulty").Classification; m != nil || library.Classified {
		t.Errorf("a run that is the only one is compared with itself: %+v", m)
	}
	labels := library.Labels()
	if len(labels) != 1 || labels[0].Context != "x-faulty" || labels[0].Validate() != nil {
		t.Fatalf("the labels are %+v, %v", labels, labels[0].Validate())
	}

	labels[0].Fault = "named by a person"
	r, err := files(t.Context(), strategy.Default(), []string{name})
	if err != nil {
		t.Fatal(err)
	}
	r.Classify(labels)
	if m := run(t, r, "x-faulty").Classification; m == nil || m.Fault != "named by a person" || !r.Classified {
		t.Errorf("the run is said to be %+v", m)
	}
	if named := run(t, r, "x-faulty").Named(); !strings.HasPrefix(named, "named by a person (98 %); most similar: ") {
		t.Errorf("it is named %q", named)
	}
	if m := run(t, r, "wafer00").Classification; m != nil {
		t.Errorf("a normal run is said to be %+v", m)
	}
	var page bytes.Buffer
	if err := r.WriteHTML(&page); err != nil || strings.Count(page.String(), "named by a person (98 %)") != 2 {
		t.Errorf("the page doesn't name the fault twice: %v", err)
	}
}

// TestRecordedFaultsAreNamed compares the recorded faults with each other, by the labels of
// the file, which tell sizes, too: see package recorded for what is right.
func TestRecordedFaultsAreNamed(t *testing.T) {
	t.Parallel()
	r, err := files(t.Context(), strategy.Default(), []string{realdata.Path(t, "etch/lam9600_machine.csv")})
	if err != nil {
		t.Fatal(err)
	}
	r.Classify(nil)
	for name, want := range map[string]string{"l3120.txm": "TCP +50", "l2918.txm": "Pr +2", "l3121.txm": "Cl2 -5, reversed", "l2940.txm": "unknown"} {
		if m := run(t, r, name).Classification; m == nil || m.String() != want {
			t.Errorf("%s is said to be %+v, want %s", name, m, want)
		}
	}
}
