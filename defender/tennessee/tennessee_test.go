package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/misuse"
)

// generated returns a file of a plant with runs of three minutes, most of which are there to
// learn from.
func generated(t *testing.T) string {
	t.Helper()
	python := filepath.Join(component.Tennessee().Fetch(t), "python", "bin", "python")
	cmd := exec.CommandContext(t.Context(), python, "generate.py", "9", "0.05", "62", "2")
	cmd.Env = append(cmd.Environ(), "OPENBLAS_NUM_THREADS=1", "MPLCONFIGDIR="+t.TempDir())
	out, err := cmd.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		t.Fatalf("%v\n%s", err, failed.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "plant.csv")
	if err := os.WriteFile(name, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAPlantIsJudgedWithItsDisturbances(t *testing.T) {
	t.Parallel()
	name := generated(t)
	c, err := read(name)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.undisturbed) != 62 || c.onset != 60 || len(c.disturbed) != 2 || len(c.disturbed[1]) != 8 || len(c.undisturbed[0].chart.SVIDs) != 52 {
		t.Fatalf("there are %d undisturbed runs, %d before disturbances %d of %d runs", len(c.undisturbed), c.onset, len(c.disturbed), len(c.disturbed[1]))
	}
	m, err := measure(&c)
	if err != nil {
		t.Fatal(err)
	}
	if judged := m.early.runs + m.early.learning + m.late.runs + m.late.learning; judged != 62 {
		t.Errorf("%d runs were judged or learned from, want 62", judged)
	}
	// A step of a feed's composition shows in every quantity of the plant, in minutes.
	if o := m.disturbed[1]; o.runs != 8 || o.alarms == 0 || o.first == 0 || o.plainSamples == 0 {
		t.Errorf("IDV 1 was met like this: %+v", o)
	}

	var pages [2]bytes.Buffer
	for i := range pages {
		if err := command([]string{name}, &pages[i], io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if pages[0].String() != pages[1].String() || !strings.Contains(pages[0].String(), "\n| IDV 2 | 8 |") {
		t.Errorf("the pages differ, or lack a disturbance:\n%s", &pages[0])
	}
}

// TestPage holds the committed page to the program: its strategy, its disturbances, and what
// it says of the aim.
func TestPage(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/results/tennessee-eastman.md")
	if err != nil {
		t.Fatal(err)
	}
	st, _ := strategy.Default().Of(refOf(0, ""))
	for _, want := range []string{"the strategy " + st.Name + ", version 1,", "\n| IDV 21 | ", "| **all** |"} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("the page has no %q: write it again by go run ./defender/tennessee", want)
		}
	}
}

func TestWrongUsageIsTold(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other.csv")
	if err := os.WriteFile(other, []byte("chamber,name,Time,A\nx,r1,0,1\nx,r1,1,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		text string
	}{
		{nil, 2, "generate.py"},
		{[]string{"--page", "x"}, 2, "page"},
		{[]string{filepath.Join(t.TempDir(), "missing.csv")}, 1, "missing.csv"},
		{[]string{other}, 1, "give a file of generate.py"},
	} {
		err := command(test.args, io.Discard, io.Discard)
		if misuse.ExitCode(err) != test.code || err == nil || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%q: exit code %d, error %v; want %d and %q", test.args, misuse.ExitCode(err), err, test.code, test.text)
		}
	}
}
