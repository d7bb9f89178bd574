package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestProcess_failed: on Kubernetes a defender that a server did not answer in time is started again.
func TestProcess_failed(t *testing.T) {
	t.Parallel()
	unanswered := fmt.Errorf("starting worker of defender: %w", context.DeadlineExceeded)
	refused := errors.New("starting worker of defender: its settings differ from the group's")
	for _, test := range []struct {
		name   string
		err    error
		again  bool // its pod starts it again
		killed bool
		want   error
	}{
		{"no answer, and nothing starts it again", unanswered, false, false, unanswered},
		{"no answer, and its pod starts it again", unanswered, true, false, nil},
		{"another error, though its pod starts it again", refused, true, false, refused},
		{"it was killed", refused, false, true, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &Process{Done: make(chan struct{}), Err: test.err}
			if test.again {
				p.startsAgain()
			}
			if test.killed {
				p.Died(time.Now())
			}
			if err := p.failed(); err != nil {
				t.Errorf("%v before its end", err)
			}
			close(p.Done)
			if err := p.failed(); err != test.want { //nolint:errorlint // the very error
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

func TestLastWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, said := filepath.Join(dir, "empty"), filepath.Join(dir, "said")
	for file, text := range map[string]string{empty: "\n", said: "first\nlast\n\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := lastWords(filepath.Join(dir, "none"), empty, said); got != "last" {
		t.Errorf("they are %q", got)
	}
	if got := lastWords(empty); got != "it said nothing" {
		t.Errorf("of an empty file they are %q", got)
	}
}
