package replay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/tchart"
)

// Source gives the contexts of chambers.
type Source interface {
	// Sample returns the n-th context, from 0, of a chamber, which is numbered
	// from 0. The trace's slices are not to be changed. It is safe for
	// concurrent use for different chambers.
	Sample(chamber, n int) Sample
	// Followed returns, for the chambers that run through a series of wafers
	// whose truth is known, how many contexts that series has.
	Followed() map[int]int
}

// Sample is one context of a Source.
type Sample struct {
	Trace tchart.Trace
	Fault string // the truth; empty for a normal wafer
}

// Chambers returns n chambers, four to a tool: tool001:chamber1 and so on.
func Chambers(n int) []defender.Chamber {
	cs := make([]defender.Chamber, n)
	for i := range cs {
		cs[i] = defender.Chamber{Tool: fmt.Sprintf("tool%03d", i/4+1), Name: fmt.Sprintf("chamber%d", i%4+1)}
	}
	return cs
}

// Open returns a Source of the CSV files of a directory, or of generated traces where it
// has no name.
func Open(dir string, seed uint64) (Source, error) {
	if dir != "" {
		return loadTraces(dir)
	}
	return GenerateTraces(seed)
}

// Context returns a chamber's context that ends at a moment, and its trace, which says so.
func Context(chamber defender.Chamber, id string, t tchart.Trace, end time.Time) (defender.ContextRef, tchart.Trace) {
	ref := defender.ContextRef{Chamber: chamber, ID: id, Recipe: t.Recipe, Product: t.Product,
		Lot: t.Lot, Wafer: t.Wafer, Start: end.Add(-Length(&t)), End: end}
	t.Tool, t.Chamber, t.Context = chamber.Tool, chamber.Name, id
	return ref, t
}

// Length returns for how long a trace was recorded.
func Length(t *tchart.Trace) time.Duration {
	if len(t.Time) == 0 {
		return 0
	}
	return max(0, time.Duration((t.Time[len(t.Time)-1]-t.Time[0])*float64(time.Second)))
}

// Register tells a store of chambers, each with the weight 1.
func Register(ctx context.Context, store defender.Store, chambers []defender.Chamber) error {
	infos := make([]defender.ChamberInfo, len(chambers))
	for i, c := range chambers {
		infos[i] = defender.ChamberInfo{Chamber: c, Weight: 1}
	}
	return store.RegisterChambers(ctx, infos)
}

// wafers is a Source of recorded wafers. One chamber for each experiment goes
// through all its wafers in the order of the file, faults included; the others
// repeat normal wafers of one experiment, each from another one on.
type wafers struct {
	series [][]*trace.Wafer // by followed chamber
	normal [][]*trace.Wafer // by experiment
}

// loadTraces reads every CSV file of a directory. The error names all that is
// wrong with them.
func loadTraces(dir string) (Source, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil || len(files) == 0 {
		if _, statErr := os.Stat(dir); statErr != nil {
			return nil, fmt.Errorf("reading traces: %w: give a directory of CSV files with --data", statErr)
		}
		return nil, fmt.Errorf("reading traces: %s has no *.csv file: give a directory of CSV files with --data", dir)
	}
	w := &wafers{}
	at := map[string]int{}
	var errs []error
	for _, f := range files {
		errs = append(errs, w.load(f, at))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, n := range w.normal {
		if len(n) == 0 {
			return nil, fmt.Errorf("reading traces: experiment %d of %s has no normal wafer: at least one is needed to learn from", i+1, dir)
		}
	}
	return w, nil
}

func (w *wafers) load(path string, at map[string]int) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading traces: %w", err)
	}
	defer func() { _ = f.Close() }()
	r, err := trace.NewReader(f, path)
	if err != nil {
		return fmt.Errorf("reading traces: %w", err)
	}
	for wafer, err := range r.All() {
		if err != nil {
			return fmt.Errorf("reading traces: %w", err)
		}
		key := path + "/" + wafer.Experiment
		i, known := at[key]
		if !known {
			i = len(w.series)
			at[key] = i
			w.series = append(w.series, nil)
			w.normal = append(w.normal, nil)
		}
		wafer.Trace.Recipe = "experiment" + wafer.Experiment
		w.series[i] = append(w.series[i], wafer)
		if wafer.Normal() {
			w.normal[i] = append(w.normal[i], wafer)
		}
	}
	return nil
}

func (w *wafers) Followed() map[int]int {
	m := map[int]int{}
	for i, s := range w.series {
		m[i] = len(s)
	}
	return m
}

func (w *wafers) Sample(chamber, n int) Sample {
	if chamber < len(w.series) && n < len(w.series[chamber]) {
		wafer := w.series[chamber][n]
		return Sample{Trace: wafer.Trace, Fault: wafer.Fault}
	}
	normal := w.normal[chamber%len(w.normal)]
	wafer := normal[(chamber*7+n)%len(normal)]
	return Sample{Trace: wafer.Trace}
}

// generated is a Source of look-alike traces. The first chambers go through a
// series with faults in it; all have the same templates, each from another one
// on.
type generated struct {
	series [][]*trace.Wafer
	clean  []trace.Generator // of the same chambers, without faults
	normal []*trace.Wafer
}

const (
	generatedSeries = 2  // chambers that are followed
	seriesLength    = 60 // wafers of each
	templates       = 64 // normal wafers that the other chambers repeat
	faultRate       = 0.15
	firstFault      = 20 // wafers of a series before this one are normal, to learn from
)

// GenerateTraces returns a Source of generated traces. The same seed gives the
// same traces.
func GenerateTraces(seed uint64) (Source, error) {
	g := &generated{}
	for i := range generatedSeries {
		faulty := trace.Generator{Seed: seed + uint64(i), FaultRate: faultRate}
		clean := trace.Generator{Seed: seed + uint64(i)}
		var s []*trace.Wafer
		for n := range seriesLength {
			if n < firstFault {
				s = append(s, clean.Wafer(n))
			} else {
				s = append(s, faulty.Wafer(n))
			}
			s[n].Trace.Recipe = "generated"
		}
		g.series, g.clean = append(g.series, s), append(g.clean, clean)
	}
	clean := trace.Generator{Seed: seed + generatedSeries}
	for n := range templates {
		w := clean.Wafer(n)
		w.Trace.Recipe = "generated"
		g.normal = append(g.normal, w)
	}
	return g, nil
}

func (g *generated) Followed() map[int]int {
	m := map[int]int{}
	for i, s := range g.series {
		m[i] = len(s)
	}
	return m
}

func (g *generated) Sample(chamber, n int) Sample {
	if chamber < len(g.series) {
		if n < len(g.series[chamber]) {
			w := g.series[chamber][n]
			return Sample{Trace: w.Trace, Fault: w.Fault}
		}
		w := g.clean[chamber].Wafer(n)
		w.Trace.Recipe = "generated"
		return Sample{Trace: w.Trace}
	}
	return Sample{Trace: g.normal[(chamber*7+n)%len(g.normal)].Trace}
}
