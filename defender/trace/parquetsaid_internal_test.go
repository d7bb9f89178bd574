package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// counted is a row of a file whose values repeat, as readings of sensors do.
type counted struct {
	Name  string  `parquet:"name,dict"`
	Time  float64 `parquet:"Time"`
	Step  *int64  `parquet:"Step Number,optional,dict"`
	Whole *int64  `parquet:"whole,optional,dict"`
	Text  string  `parquet:"text,dict"`
}

// TestParquetRows: each value of a dictionary is converted once. Converting the value of each row is
// most of what it costs to read sensors that are integers.
func TestParquetRows(t *testing.T) {
	t.Parallel()
	const runs, perRun, readings = 5, 400, 7
	var rows []counted
	for i := range runs * perRun {
		whole := int64(i % readings)
		rows = append(rows, counted{Name: fmt.Sprint("r", i/perRun), Time: float64(i), Step: &whole, Whole: &whole, Text: fmt.Sprint(i % readings)})
	}
	var file bytes.Buffer
	w := parquet.NewGenericWriter[counted](&file)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	r, err := NewParquetReader(bytes.NewReader(file.Bytes()), int64(file.Len()), "x.parquet", Columns{})
	if err != nil {
		t.Fatal(err)
	}
	conversions := map[int]int{}
	for field, c := range r.rows.(*parquetRows).columns {
		convert := c.convert
		c.convert = func(v parquet.Value) cells.Cell {
			conversions[field]++
			return convert(v)
		}
	}
	for err = nil; err == nil; {
		_, err = r.Read()
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	t.Run("a value of a dictionary is converted once", func(t *testing.T) {
		// Rows that begin runs are read one by one, some of them by several looks at a cell.
		for field, name := range []string{"name", "Time", "Step Number", "whole", "text"} {
			if most := readings + 12*runs; conversions[field] > most {
				t.Errorf("column %s: %d conversions for %d rows, want at most %d", name, conversions[field], runs*perRun, most)
			}
		}
	})
}
