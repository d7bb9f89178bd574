package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster/defender/trace"
)

// wafers is a Source of recorded wafers. One chamber for each experiment goes
// through all its wafers in the order of the file, faults included; the others
// repeat normal wafers of one experiment, each from another one on.
type wafers struct {
	series [][]*trace.Wafer // by followed chamber
	normal [][]*trace.Wafer // by experiment
}

// LoadTraces reads every CSV file of a directory. The error names all that is
// wrong with them.
func LoadTraces(dir string) (Source, error) {
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

// Experiments returns how many series of wafers there are; used by tests.
func (w *wafers) experiments() []int {
	var n []int
	for _, s := range w.series {
		n = append(n, len(s))
	}
	slices.Sort(n)
	return n
}
