package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/internal/realdata"
)

// TestLabelledFaultsAreRecognized holds this rule to what the page says of it: it names no
// fault wrongly, and more of them rightly than nearest neighbors.
func TestLabelledFaultsAreRecognized(t *testing.T) {
	t.Parallel()
	experiments, err := read(realdata.Path(t, "etch/lam9600_machine.csv"))
	if err != nil {
		t.Fatal(err)
	}
	least := []int{4, 5, 11} // of 5, 6 and 13 known faults
	for i, trials := range allTrials(experiments) {
		mine := trials[len(trials)-1].score()
		t.Logf("%s: %+v", trials[0].name, mine)
		if mine.right < least[i] || mine.wrong > 0 || mine.recognized < mine.novel {
			t.Errorf("%s: %+v, want at least %d right, none wrong, and all new ones unknown", trials[0].name, mine, least[i])
		}
		for k, m := range methods()[:3] {
			if other := trials[k].score(); other.right+other.aside >= mine.right {
				t.Errorf("%s: %s has %d right, not fewer than %d", trials[0].name, m.name, other.right+other.aside, mine.right)
			}
		}
	}
}

// TestPage holds the committed page to the program.
func TestPage(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../../docs/results/classification.md")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := command([]string{realdata.Path(t, "etch/lam9600_machine.csv")}, &got, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the page isn't what the command writes: write it again by go run ./defender/recorded")
	}
}

func TestWrongUsageIsTold(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "other.csv")
	text := "name,Time,Step Number,Pressure\nl2901.txm,0,4,1\nl2901.txm,1,4,2\n"
	if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		text string
	}{
		{nil, 2, "give the file of the recorded etches"},
		{[]string{"--page", "x"}, 2, "page"},
		{[]string{filepath.Join(t.TempDir(), "missing.csv")}, 1, "missing.csv"},
		{[]string{other}, 1, "1 experiments, want 2"},
	} {
		err := command(test.args, io.Discard, io.Discard)
		if misuse.ExitCode(err) != test.code || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%q: exit code %d, error %v; want %d and %q", test.args, misuse.ExitCode(err), err, test.code, test.text)
		}
	}
}
