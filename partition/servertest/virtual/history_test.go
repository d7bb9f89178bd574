//go:build !race

package virtual

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// history is what happened in a run: all faults, and the latest of everything.
type history struct {
	began time.Time

	mu     sync.Mutex
	faults []string
	lines  []string
}

const keptLines = 1000

func newHistory() *history { return &history{began: time.Now()} }

func (h *history) since(at time.Time) time.Duration { return at.Sub(h.began).Round(time.Microsecond) }

func (h *history) add(format string, args ...any) {
	line := fmt.Sprintf("%14v ", h.since(time.Now())) + fmt.Sprintf(format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	if len(h.lines) >= 2*keptLines {
		h.lines = append([]string(nil), h.lines[keptLines:]...)
	}
}

func (h *history) fault(format string, args ...any) {
	h.add("FAULT "+format, args...)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faults = append(h.faults, fmt.Sprintf("%14v ", h.since(time.Now()))+fmt.Sprintf(format, args...))
}

func (h *history) event(pod string, e event.Event) {
	e.Time = time.Time{}
	text, _ := json.Marshal(e)
	h.add("%s %s", pod, strings.ReplaceAll(string(text), `"time":"0001-01-01T00:00:00Z",`, ""))
}

func (h *history) schedule() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.faults, "\n")
}

func (h *history) tail() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines[max(0, len(h.lines)-keptLines):], "\n")
}
