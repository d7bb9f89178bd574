package strategy

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
)

// Watcher judges by a strategy file and takes changes of it over. A file with
// faults is logged and the strategies before it stay. A changed content under an
// unchanged or lower version is refused too: verdicts name the version, which has
// to tell one rule from another.
type Watcher struct {
	name   string
	log    *slog.Logger
	now    atomic.Pointer[Set]
	data   []byte // that was read last, with faults or without
	loaded []byte // of now
}

// Watch loads a file, whose faults are the error here. Run takes later changes
// over.
func Watch(name string, log *slog.Logger) (*Watcher, error) {
	set, err := Load(name)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading strategies: %w", err)
	}
	w := &Watcher{name: name, log: log, data: data, loaded: data}
	w.now.Store(set)
	return w, nil
}

// Set returns the strategies that apply now.
func (w *Watcher) Set() *Set { return w.now.Load() }

// Judge judges by the strategies that apply now; see [Set.Judge].
func (w *Watcher) Judge(ref defender.ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict {
	return w.Set().Judge(ref, history, chart)
}

// Run looks at the file at each interval until ctx ends. Looking by content works
// on every file system, with links replaced as Kubernetes does for config maps.
func (w *Watcher) Run(ctx context.Context, interval time.Duration) {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			w.Reload()
		}
	}
}

// Reload looks at the file once and reports whether it took a change over.
func (w *Watcher) Reload() bool {
	data, err := os.ReadFile(w.name)
	if err != nil {
		w.log.Warn("The strategy file can't be read; the strategies before stay.", "file", w.name, "err", err)
		return false
	}
	if bytes.Equal(data, w.data) {
		return false
	}
	w.data = data
	if bytes.Equal(data, w.loaded) {
		return false
	}
	set, err := Parse(data, w.name)
	before := w.Set().Version()
	if err == nil && set.Version() <= before {
		err = fmt.Errorf("it changed, but its version is %d and not above %d: raise it, verdicts name it", set.Version(), before)
	}
	if err != nil {
		w.log.Error("The strategy file has faults; the strategies before stay.", "file", w.name, "version", before, "err", err)
		return false
	}
	w.now.Store(set)
	w.loaded = data
	w.log.Info("Took over changed strategies.", "file", w.name, "before", before, "version", set.Version())
	return true
}
