package deployed

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/console"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "console.audit")
	first, err := OpenAudit(path)
	if err != nil {
		t.Fatal(err)
	}
	done := console.Done{At: time.Date(2026, 1, 31, 2, 10, 0, 0, time.UTC), Command: console.Command{Name: console.AcknowledgeFailure, Target: "defender-3", Reason: "a disk", By: "olga"}}
	for _, group := range []string{"defender", "orders"} {
		if err := first.record(group)(done); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}

	t.Run("the next console knows what was done, by group", func(t *testing.T) {
		again, err := OpenAudit(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = again.Close() }()
		if got := again.of("defender"); len(got) != 1 || got[0] != done || len(again.of("other")) != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a line that a crash has cut off is replaced", func(t *testing.T) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, `{"at":"2026`...), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := OpenAudit(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.record("defender")(done); err != nil {
			t.Fatal(err)
		}
		_ = a.Close()
		if a, err = OpenAudit(path); err != nil || len(a.of("defender")) != 2 {
			t.Errorf("%v", err)
		}
		_ = a.Close()
	})
	t.Run("a line that is none is not passed over", func(t *testing.T) {
		other := filepath.Join(t.TempDir(), "notes")
		if err := os.WriteFile(other, []byte("buy milk\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAudit(other); err == nil || !strings.Contains(err.Error(), "line 1 is no command") {
			t.Errorf("%v", err)
		}
		if text, _ := os.ReadFile(other); string(text) != "buy milk\n" {
			t.Errorf("it was changed to %q", text)
		}
	})
}
