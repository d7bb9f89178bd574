package analyze

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
)

// Analysis reads trace files (see package trace for their form) and judges their runs while it
// reads. It holds no trace for longer than it takes to judge it, so files may be of any size.
type Analysis struct {
	Strategies *strategy.Set
	Columns    trace.Columns
	Keep       Keep
	Whole      *Verdicts // takes whole verdicts, for [Report.WriteJSON]; nil if what Keep says is enough
	// Progress is called after each run that was read; nil if nobody wants to know.
	Progress func(Progress)
}

// Progress is how far an analysis is.
type Progress struct {
	Read, Size int64 // bytes of all files
	Runs       int   // that were read
	Alarms     int   // of those that were judged so far
}

// Files analyzes files. Errors name the file, line and column of what is wrong, all of a file
// at once.
func (a *Analysis) Files(ctx context.Context, names []string) (*Report, error) {
	r := &Report{Files: names, Version: a.Strategies.Version(), columns: a.Columns, whole: a.Whole}
	judges := startJudges(ctx, a)
	in := &reading{analysis: a, report: r, judges: judges}
	in.progress.Size = sizeOf(names)

	var errs []error
	for _, name := range names {
		if err := in.file(judges.ctx, name); err != nil {
			errs = append(errs, err)
		}
	}
	if err := judges.wait(); err != nil {
		return nil, err
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if in.progress.Runs == 0 {
		return nil, errors.New("the files have no runs")
	}

	for _, g := range r.Groups {
		g.judging, g.Note = nil, g.unjudged(a.Strategies)
		for _, run := range g.Runs {
			r.Total.add(run)
		}
	}
	return r, nil
}

// sizeOf returns how many bytes files have. One that can't be read is told of where it is read.
func sizeOf(names []string) (sum int64) {
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// reading is an analysis while files are read.
type reading struct {
	analysis *Analysis
	report   *Report
	judges   *judges
	progress Progress
}

// file reads a file and has its runs judged.
func (in *reading) file(ctx context.Context, name string) error {
	before := in.progress.Read
	return in.report.each(name, func(g *Group, w *trace.Wafer, read int64) error {
		run := &Run{File: name, Context: w.Trace.Context, Fault: w.Fault, Set: w.Set, Points: w.Trace.Points(), sensor: w.Trace.SVIDs[0]}
		g.Runs = append(g.Runs, run)
		in.report.Labelled = in.report.Labelled || w.Fault != ""
		if g.judging == nil {
			g.judging = in.judges.enter(g)
		}
		if err := in.judges.judge(ctx, judgement{g, run, len(g.Runs), &w.Trace}); err != nil {
			return err
		}

		in.progress.Read, in.progress.Alarms = before+read, int(in.judges.alarms.Load())
		in.progress.Runs++
		if in.analysis.Progress != nil {
			in.analysis.Progress(in.progress)
		}
		return nil
	})
}

// each calls f with each run of a file, with its group and with how many bytes of the file were
// read so far.
func (r *Report) each(name string, f func(g *Group, w *trace.Wafer, read int64) error) (err error) {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()

	counted := &counter{file: file}
	reader, err := r.reader(counted, name)
	if err != nil {
		return err
	}
	for w, err := range reader.All() {
		if err != nil {
			return err
		}
		if err := f(r.group(name, r.columns, w), w, counted.n.Load()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// reader reads a file by what it begins with: Parquet, or else CSV.
func (r *Report) reader(file *counter, name string) (*trace.Reader, error) {
	const parquet = "PAR1"
	magic := make([]byte, len(parquet))
	if _, err := file.file.ReadAt(magic, 0); err != nil || string(magic) != parquet {
		return trace.NewColumnReader(file, filepath.Base(name), r.columns)
	}

	info, err := file.file.Stat()
	if err != nil {
		return nil, err
	}
	return trace.NewParquetReader(file, info.Size(), filepath.Base(name), r.columns)
}

// counter counts the bytes that are read of a file.
type counter struct {
	file *os.File
	n    atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.file.Read(p)
	c.n.Add(int64(n))
	return n, err
}

func (c *counter) ReadAt(p []byte, at int64) (int, error) {
	n, err := c.file.ReadAt(p, at)
	c.n.Add(int64(n))
	return n, err
}
