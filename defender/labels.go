package defender

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/defender/uchart"
)

// labelsLife is how long labels that were read serve before they are read again: how long a
// new label takes to count.
const labelsLife = 30 * time.Second

// labels names the faults of alarms by the labels in a store. What it says isn't part of a
// verdict: labels come and go, and a context that is judged again has to get the same verdict.
type labels struct {
	store  Store
	logger *slog.Logger

	mu      sync.Mutex // not held while the store is asked
	library *classify.Library
	read    time.Time // when, or when it was tried
	failed  bool
}

// classify names the fault of an alarm; nil if it isn't one of the process, or if there is
// nothing to compare it with. An alarm isn't held up by labels that can't be read: those read
// before serve.
func (l *labels) classify(ctx context.Context, v uchart.Verdict) *classify.Match {
	if v.State != uchart.Alarm || v.Multivariate == nil || len(v.Multivariate.Signature) == 0 {
		return nil
	}
	library := l.current(ctx)
	if library == nil {
		return nil
	}
	return library.Classify(v.Multivariate.Signature)
}

// current returns the library, nil if none could be read yet.
func (l *labels) current(ctx context.Context) *classify.Library {
	l.mu.Lock()
	library, due := l.library, time.Since(l.read) >= labelsLife
	if due {
		l.read = time.Now() // others take what is there meanwhile
	}
	l.mu.Unlock()
	if !due {
		return library
	}

	list, err := l.store.Labels(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if !l.failed {
			l.logger.Warn("Labels of faults can't be read; alarms name no fault, or by earlier labels.", "err", err)
		}
		l.failed = true
		return l.library
	}
	l.library, l.failed = FaultLibrary(list), false
	return l.library
}
