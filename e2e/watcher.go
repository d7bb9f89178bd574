package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/processor"
)

// sample is how this process was at a moment.
type sample struct {
	T          float64 `json:"t"`        // s since watching began
	HeapMiB    float64 `json:"heap_mib"` // that was in use at the last collection
	RSSMiB     float64 `json:"rss_mib"`  // resident memory; 0 where it can't be told
	Goroutines int     `json:"goroutines"`
	Stored     int64   `json:"stored"` // messages since watching began
}

// watcher looks at this process while a load is on it, and profiles it.
type watcher struct {
	samples []sample
	took    time.Duration

	stored func() int64
	file   *os.File
	used   time.Duration // of the processor, at first
	began  time.Time
	end    chan struct{}
	wg     sync.WaitGroup
}

const watchEvery = 2 * time.Second

// watch begins to watch; the profile goes to a file. stored returns how many messages are
// stored.
func watch(path string, stored func() int64) (*watcher, error) {
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return nil, fmt.Errorf("keeping the profile: %w", err)
	}
	w := &watcher{stored: stored, file: f, end: make(chan struct{}), used: processor.Time(), began: time.Now()}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("profiling: %w", err)
	}
	w.wg.Go(func() {
		t := time.NewTicker(watchEvery)
		defer t.Stop()
		for {
			w.samples = append(w.samples, w.sample())
			select {
			case <-w.end:
				return
			case <-t.C:
			}
		}
	})
	return w, nil
}

// stop ends watching.
func (w *watcher) stop() {
	pprof.StopCPUProfile()
	w.took, w.used = time.Since(w.began), processor.Time()-w.used
	close(w.end)
	w.wg.Wait()
	_ = w.file.Close()
}

// cpu is the processor time used while watching; 0 where it can't be told.
func (w *watcher) cpu() time.Duration { return w.used }

func (w *watcher) sample() sample {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	s := sample{T: round(time.Since(w.began).Seconds()), HeapMiB: mebibytes(live[0].Value.Uint64()), RSSMiB: mebibytes(resident()), Goroutines: runtime.NumGoroutine(), Stored: w.stored()}
	return s
}

func mebibytes(n uint64) float64 { return round(float64(n) / (1 << 20)) }

// resident returns the resident memory of this process in bytes, 0 where the system
// has no /proc.
func resident() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// Growth compares the second quarter of a time with the last, by medians.
type Growth struct {
	Before float64 `json:"second_quarter"`
	After  float64 `json:"last_quarter"`
	Max    float64 `json:"max"`
}

func (g Growth) String() string {
	return fmt.Sprintf("%.0f then %.0f, at most %.0f", g.Before, g.After, g.Max)
}

// flat reports whether there is no growth by more than a factor or an amount.
func (g Growth) flat(factor, amount float64) bool {
	return g.After <= max(g.Before*factor, g.Before+amount)
}

func (w *watcher) growth(of func(sample) float64) Growth {
	n := len(w.samples)
	if n == 0 {
		return Growth{}
	}
	middle := func(ss []sample) float64 {
		var vs []float64
		for _, s := range ss {
			vs = append(vs, of(s))
		}
		slices.Sort(vs)
		return vs[len(vs)/2]
	}
	g := Growth{Before: middle(w.samples[n/4 : max(n/2, n/4+1)]), After: middle(w.samples[n-max(n/4, 1):])}
	for _, s := range w.samples {
		g.Max = max(g.Max, of(s))
	}
	return g
}
