package ingest

import (
	"bytes"
	"errors"
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// readParquet reads a Parquet file of flat columns.
func readParquet(data []byte, t *table) error {
	f, err := cells.OpenParquet(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return corrupt("Parquet file", err)
	}
	if f.NumRows() > MaxNumbers {
		return errTooLarge
	}
	fields := f.Root().Columns()
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = field.Name()
	}
	if err := t.header(names); err != nil {
		return err
	}
	for at, field := range fields {
		if !t.used(at) {
			continue
		}
		convert, why := cells.Parquet(field)
		if why != "" {
			t.problems.add(field.Name(), 0, "%s", why)
			continue
		}
		for _, group := range f.RowGroups() {
			if err := readParquetColumn(group.ColumnChunks()[field.Index()], t, at, convert); err != nil {
				return corrupt("Parquet file", err)
			}
		}
	}
	return nil
}

// readParquetColumn gives a column its cells of one row group.
func readParquetColumn(chunk parquet.ColumnChunk, t *table, at int, convert func(parquet.Value) cells.Cell) (err error) {
	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	values := make([]parquet.Value, 512)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := readParquetPage(page, values, t, at, convert); err != nil {
			return err
		}
	}
}

func readParquetPage(page parquet.Page, values []parquet.Value, t *table, at int, convert func(parquet.Value) cells.Cell) error {
	defer parquet.Release(page)
	reader := page.Values()
	for {
		n, err := reader.ReadValues(values)
		for _, v := range values[:n] {
			c := cells.Cell{}
			if !v.IsNull() {
				c = convert(v)
			}
			if err := t.add(at, c); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n == 0 {
			return io.ErrNoProgress
		}
	}
}
