package gem

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender"
)

func refOf(name string) defender.ContextRef {
	return defender.ContextRef{Chamber: defender.Chamber{Tool: "etch1", Name: "c1"}, ID: name, Start: noon, End: noon}
}

func openLedger(t testing.TB, name string) *Ledger {
	t.Helper()
	l, err := OpenLedger(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func write(t testing.TB, l *Ledger, state, name string) {
	t.Helper()
	if err := l.write(entry{State: state, Ref: refOf(name)}); err != nil {
		t.Fatal(err)
	}
}

// unfinishedOf writes the runs that are open, in their order.
func unfinishedOf(l *Ledger) string {
	var texts []string
	for _, e := range l.unfinished() {
		texts = append(texts, e.Ref.ID+" "+e.State)
	}
	return strings.Join(texts, ", ")
}

func TestLedger(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ledger")
	l := openLedger(t, name)
	write(t, l, stateOpen, "b")
	write(t, l, stateOpen, "a")
	write(t, l, stateEnded, "a")
	write(t, l, stateOpen, "taken")
	write(t, l, stateTaken, "taken")
	write(t, l, stateIncomplete, "lost")
	const want = "b open, a ended"
	if got := unfinishedOf(l); got != want {
		t.Errorf("%s, want %s", got, want)
	}

	// The line after these was cut off by a crash.
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"run":"etch1:c1/b","sta`); err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(f.Close(), l.Close())
	again := openLedger(t, name)
	if got := unfinishedOf(again); got != want || len(again.lost) != 1 {
		t.Errorf("after a crash %s, want %s; %d are lost", got, want, len(again.lost))
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "taken") || !strings.Contains(string(content), "etch1:c1/lost") {
		t.Errorf("it keeps\n%s", content)
	}
}

func TestLedger_compacts(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ledger")
	l := openLedger(t, name)
	write(t, l, stateOpen, "first")
	l.lines = compactAfter - 3
	write(t, l, stateOpen, "a")
	write(t, l, stateTaken, "a")
	write(t, l, stateOpen, "last")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(content), "\n"); n != 2 {
		t.Errorf("it has %d lines:\n%s", n, content)
	}
	write(t, l, stateOpen, "after")
	_ = l.Close()
	if got := unfinishedOf(openLedger(t, name)); got != "first open, last open, after open" {
		t.Error(got)
	}
}

// TestLedger_faults: after a line that could not be written no other is, which would follow a
// part of it.
func TestLedger_faults(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ledger")
	l := openLedger(t, name)
	_ = l.file.Close()
	for range 2 {
		if err := l.write(entry{State: stateOpen, Ref: refOf("a")}); err == nil || !strings.Contains(err.Error(), "make room and start again") {
			t.Errorf("it is written: %v", err)
		}
	}
	_ = l.Close()
	if err := os.WriteFile(name, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(name); err == nil || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("a line of no run: %v", err)
	}
	if _, err := OpenLedger(filepath.Join(name, "x")); err == nil {
		t.Error("a file within a file is opened")
	}
}

// FuzzLedger: what is read is the same after it was read again.
func FuzzLedger(f *testing.F) {
	f.Add([]byte("{}\n"))
	name := filepath.Join(f.TempDir(), "ledger")
	l := openLedger(f, name)
	for i, state := range []string{stateOpen, stateEnded, stateTaken, stateIncomplete, stateRefused} {
		write(f, l, state, fmt.Sprint(i))
	}
	content, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Fuzz(func(t *testing.T, content []byte) {
		l := &Ledger{open: map[defender.TChartKey]entry{}}
		if err := l.replay(content); err != nil {
			return
		}
		for _, e := range l.unfinished() {
			if err := e.Ref.Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}
