package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/storetest"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/command"
)

func TestFaultsAreLabelledFromTheShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, other, exported := filepath.Join(dir, "fdc.db"), filepath.Join(dir, "other.db"), filepath.Join(dir, "faults.json")
	chamber := defender.Chamber{Tool: "etch01", Name: "a"}
	for _, name := range []string{store, other} {
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: name})
		if err != nil {
			t.Fatal(err)
		}
		alarm := storetest.NewResult(chamber, "etch", 1, uchart.Alarm)
		alarm.UChart.Verdict.Multivariate = &uchart.Multivariate{Signature: []uchart.Level{{SVID: "Pressure", Sigmas: 12}, {SVID: "RF Pwr", Sigmas: -3}}}
		for _, r := range []defender.Result{alarm, storetest.NewResult(chamber, "etch", 2, uchart.Normal)} {
			if _, err := s.Commit(t.Context(), defender.Fence{}, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	call := func(code int, args ...string) string {
		t.Helper()
		got, out, errs := muster(append([]string{"defender", "faults"}, args...)...)
		if got != code {
			t.Errorf("%v: exit code is %d, want %d: %s", args, got, code, errs)
		}
		return out + errs
	}
	for _, step := range []struct {
		code int
		args []string
		want []string
	}{
		{command.ExitOK, []string{"list", "--store", store}, []string{"CHAMBER"}},
		{command.ExitOK, []string{"label", "etch01:a", "ctx-000001", "pressure high", "--opposite", "pressure low", "--by", "mia", "--store", store}, []string{"labelled run ctx-000001 of etch01:a: pressure high"}},
		{command.ExitFailed, []string{"label", "etch01:a", "ctx-000002", "leak", "--store", store}, []string{"normal", "label a run that is an alarm"}},
		{command.ExitFailed, []string{"label", "etch01:a", "ctx-9", "leak", "--store", store}, []string{"ctx-9"}},
		{command.ExitUsage, []string{"label", "etch01", "ctx-9", "", "--store", store}, []string{"colon", "the fault has no name"}},
		{command.ExitUsage, []string{"label", "etch01:a", "ctx-000001", "leak", "--opposite", "leak", "--store", store}, []string{"its opposite"}},
		{command.ExitFailed, []string{"list", "--store", filepath.Join(dir, "missing.db")}, []string{"missing.db", "--store"}},
		{command.ExitOK, []string{"list", "--store", store}, []string{"pressure high", "pressure low", "mia", "Pressure +12.0, RF Pwr -3.0"}},
		{command.ExitFailed, []string{"remove", "etch01:a", "ctx-9", "--store", store}, []string{"has no label"}},
	} {
		text := call(step.code, step.args...)
		for _, want := range step.want {
			if !strings.Contains(text, want) {
				t.Errorf("%v doesn't say %q: %s", step.args, want, text)
			}
		}
	}

	if err := os.WriteFile(exported, []byte(call(command.ExitOK, "list", "--output", "json", "--store", store)), 0o600); err != nil {
		t.Fatal(err)
	}
	call(command.ExitOK, "import", exported, "--store", other)
	if text := call(command.ExitOK, "list", "--store", other); !strings.Contains(text, "pressure high") {
		t.Errorf("after the import the list is %s", text)
	}
	call(command.ExitOK, "remove", "etch01:a", "ctx-000001", "--store", other)
	if text := call(command.ExitOK, "list", "--store", other); strings.Contains(text, "pressure") {
		t.Errorf("after the removal the list is %s", text)
	}

	if err := os.WriteFile(exported, []byte(`[{"chamber": "etch01:a", "context": "x", "fault": "", "by": "", "at": "2026-01-01T00:00:00Z", "signature": []}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"defender", "faults", "import", exported, "--store", other}, {"defender", "analyze", "x.csv", "--faults", exported}} {
		if code, _, errs := muster(args...); code != command.ExitUsage || !strings.Contains(errs, "label 1, run x of etch01:a") || !strings.Contains(errs, "signature") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}
