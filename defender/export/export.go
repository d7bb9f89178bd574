// Package export writes what a store has as Parquet files, for any program that reads tables.
//
// Rows are written as they are read, a chamber at a time, so memory holds the runs of one
// chamber and one row group. docs/defender/data.md specifies the columns.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster/defender"
)

// Options say what is exported.
type Options struct {
	Chambers []defender.Chamber // none: all that are registered
	Since    time.Time          // runs that ended at or after it; zero: all
	Runs     int                // at most N of each chamber, the newest
	Tables   []string           // of Names
	Dir      string             // a file for each table is written there
}

// Written is what an export has written.
type Written struct {
	File string `json:"file"`
	Rows int64  `json:"rows"`
}

// Names lists the tables.
func Names() []string { return []string{"traces", "statistics", "verdicts", "alarms"} }

// Run writes a file NAME.parquet for each table, and returns them with the number of runs whose
// T-chart has expired. A file takes its name once it is complete, and replaces one of that name.
func Run(ctx context.Context, store defender.Store, o Options) (written []Written, expired int, err error) {
	if len(o.Chambers) == 0 {
		if o.Chambers, err = registered(ctx, store); err != nil {
			return nil, 0, err
		}
	}
	e := &exporter{store: store, options: o}
	for _, name := range o.Tables {
		w, err := e.table(ctx, name)
		if err != nil {
			return nil, 0, fmt.Errorf("exporting %s: %w", name, err)
		}
		written = append(written, w)
	}
	return written, e.expired, nil
}

func registered(ctx context.Context, store defender.Store) ([]defender.Chamber, error) {
	infos, err := store.Chambers(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the chambers: %w", err)
	}
	chambers := make([]defender.Chamber, len(infos))
	for i, info := range infos {
		chambers[i] = info.Chamber
	}
	return chambers, nil
}

// exporter writes the tables of one export.
type exporter struct {
	store   defender.Store
	options Options
	expired int // runs without a T-chart
}

// table writes one table beside its file, and then gives it that name.
func (e *exporter) table(ctx context.Context, name string) (w Written, err error) {
	w.File = filepath.Join(e.options.Dir, name+".parquet")
	f, err := os.CreateTemp(e.options.Dir, "."+name+"-*")
	if err != nil {
		return w, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	switch name {
	case "traces":
		w.Rows, err = write(ctx, e, f, e.traces)
	case "statistics":
		w.Rows, err = write(ctx, e, f, statistics)
	case "verdicts":
		w.Rows, err = write(ctx, e, f, verdicts)
	case "alarms":
		w.Rows, err = write(ctx, e, f, alarms)
	default:
		err = fmt.Errorf("there is no such table: name one of %v", Names())
	}
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return w, err
	}
	return w, os.Rename(f.Name(), w.File)
}

// groupRows is how many rows a row group has: what is in memory of a table.
const groupRows = 1 << 17

// write writes the rows of all runs, those of a chamber from the oldest on.
func write[Row any](ctx context.Context, e *exporter, out io.Writer, rowsOf func(ctx context.Context, u defender.UChart, emit func(Row) error) error) (int64, error) {
	b := &buffer[Row]{writer: parquet.NewGenericWriter[Row](out, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(groupRows), parquet.CreatedBy("muster", "", ""))}
	for _, chamber := range e.options.Chambers {
		runs, err := e.store.UCharts(ctx, chamber, e.options.Runs)
		if err != nil {
			return 0, fmt.Errorf("reading the runs of %s: %w", chamber, err)
		}
		for _, u := range slices.Backward(runs) {
			if u.Context.End.Before(e.options.Since) {
				continue
			}
			if err := rowsOf(ctx, u, b.add); err != nil {
				return 0, fmt.Errorf("run %s: %w", u.Context.TChart(), err)
			}
		}
	}
	if err := errors.Join(b.flush(), b.writer.Close()); err != nil {
		return 0, err
	}
	return b.written, nil
}

// buffer gives a writer its rows a few at a time: one at a time is slow.
type buffer[Row any] struct {
	writer  *parquet.GenericWriter[Row]
	rows    []Row
	written int64
}

const bufferRows = 1024

func (b *buffer[Row]) add(row Row) error {
	b.rows = append(b.rows, row)
	if len(b.rows) < bufferRows {
		return nil
	}
	return b.flush()
}

func (b *buffer[Row]) flush() error {
	n, err := b.writer.Write(b.rows)
	b.written += int64(n)
	b.rows = b.rows[:0]
	return err
}
