package trace

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// NewParquetReader is NewColumnReader for a Parquet file of flat columns. It reads the columns
// that are sensors or have a meaning, page by page; lines in messages are rows, from 1.
func NewParquetReader(r io.ReaderAt, size int64, name string, columns Columns) (*Reader, error) {
	reader := newReader(name)
	var file *parquet.File
	err := guarded(func() (err error) {
		file, err = cells.OpenParquet(r, size)
		return err
	})
	if err != nil {
		return nil, reader.readError(&brokenFile{0, err})
	}
	fields := file.Root().Columns()
	header := make([]string, len(fields))
	for i, field := range fields {
		header[i] = field.Name()
	}

	reader.header(header, columns)
	table := &parquetRows{total: file.NumRows(), columns: make([]*parquetColumn, len(fields))}
	for _, at := range reader.used() {
		convert, why := cells.Parquet(fields[at])
		if why != "" {
			reader.problem(1, header[at], why)
			continue
		}
		table.columns[at] = &parquetColumn{groups: file.RowGroups(), index: fields[at].Index(), convert: convert}
	}
	return reader.begins(table)
}

// parquetRows are the rows of a Parquet file.
type parquetRows struct {
	row, total int64
	columns    []*parquetColumn // nil for one that isn't used
}

func (p *parquetRows) next() error {
	if p.row == p.total {
		return errors.Join(io.EOF, p.close())
	}
	p.row++
	for _, c := range p.columns {
		if c == nil {
			continue
		}
		if err := c.next(); err != nil {
			return errors.Join(&brokenFile{int(p.row), err}, p.close())
		}
	}
	return nil
}

// brokenFile is what can't be decoded of a file.
type brokenFile struct {
	row int // 0: the file as a whole
	err error
}

func (b *brokenFile) Error() string { return "the Parquet file is broken: " + b.err.Error() }

func (b *brokenFile) Unwrap() error { return b.err }

func (p *parquetRows) close() error {
	var errs []error
	for _, c := range p.columns {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	return errors.Join(errs...)
}

func (p *parquetRows) line(int) int { return int(p.row) }

func (p *parquetRows) text(field int) string { return p.columns[field].text() }

func (p *parquetRows) is(field int, text string) bool { return p.text(field) == text }

func (p *parquetRows) number(field int) (float64, bool) { return p.columns[field].cell().AsNumber() }

func (p *parquetRows) whole(field int) (int64, bool) { return p.columns[field].cell().AsWhole() }

func (p *parquetRows) seconds(field int) (float64, bool) {
	return seconds(p.columns[field].cell())
}

// seconds returns the time that a cell says.
func seconds(c cells.Cell) (float64, bool) {
	switch c.Kind {
	case cells.Stamp:
		at := time.Unix(0, c.Whole)
		return float64(at.Unix()) + float64(at.Nanosecond())/1e9, true
	case cells.Text:
		return parseTime(c.Text)
	default:
		return c.AsNumber()
	}
}

// alike returns how many rows follow that have the texts of the row at hand in these fields. It
// counts none beyond the pages that are decoded.
func (p *parquetRows) alike(fields []int) int {
	n := math.MaxInt
	for _, c := range p.columns {
		if c != nil {
			n = min(n, c.page.rows-c.at.row-1)
		}
	}
	for _, field := range fields {
		n = p.columns[field].alike(n)
	}
	return int(min(int64(n), p.total-p.row))
}

// skip goes n rows on, at most as many as alike has returned.
func (p *parquetRows) skip(n int) {
	p.row += int64(n)
	for _, c := range p.columns {
		if c != nil {
			c.at = c.page.after(c.at, n)
		}
	}
}

func (p *parquetRows) numbers(field, n int, to []float64) ([]float64, bool) {
	return p.columns[field].numbers(n, to)
}

func (p *parquetRows) times(field, n int, to []float64) ([]float64, bool) {
	return p.columns[field].times(n, to)
}

func (p *parquetRows) wholes(field, n int, to []int64) ([]int64, bool) {
	return p.columns[field].wholes(n, to)
}

// parquetColumn goes through the values of a column.
type parquetColumn struct {
	groups  []parquet.RowGroup // that are still to be read
	index   int                // of the column in them
	convert func(parquet.Value) cells.Cell

	pages parquet.Pages // of the row group
	page  parquetPage
	at    place // of the row

	said       parquetSaid
	dictionary parquet.Dictionary // whose values said is of; nil if of the page
}

// next goes to the next row.
func (c *parquetColumn) next() error {
	c.at = c.page.after(c.at, 1)
	for c.at.row >= c.page.rows {
		if err := c.fill(); err != nil {
			return err
		}
	}
	return nil
}

// cell returns the row's value.
func (c *parquetColumn) cell() cells.Cell { return c.cellAt(c.at) }

func (c *parquetColumn) cellAt(at place) cells.Cell {
	if c.page.null(at) {
		return cells.Cell{}
	}
	return c.convert(c.page.value(at.value))
}

func (c *parquetColumn) text() string { return c.cell().String() }

// alike returns how many of the n rows after the one at hand say what it says.
func (c *parquetColumn) alike(n int) int {
	if c.page.whole && c.page.codes != nil {
		return c.page.coded(c.at, n)
	}
	at := c.at
	for i := range n {
		at = c.page.after(at, 1)
		if !c.same(at) {
			return i
		}
	}
	return n
}

// same reports whether another row of the page says what the one at hand says.
func (c *parquetColumn) same(at place) bool {
	null := c.page.null(c.at)
	switch {
	case null || c.page.null(at):
		return null == c.page.null(at)
	case c.page.codes != nil:
		return c.page.codes[c.at.value] == c.page.codes[at.value]
	case c.page.values.Kind() == encoding.ByteArray:
		return bytes.Equal(c.page.bytes(c.at.value), c.page.bytes(at.value))
	}
	a, b := c.cell(), c.cellAt(at)
	return a == b || a.String() == b.String() // NaN says what NaN says
}

// fill decodes the next page, of the next row group if it must.
func (c *parquetColumn) fill() error {
	c.release()
	if c.pages == nil {
		if len(c.groups) == 0 {
			return io.ErrUnexpectedEOF
		}
		c.pages, c.groups = c.groups[0].ColumnChunks()[c.index].Pages(), c.groups[1:]
	}
	err := guarded(func() error {
		page, err := c.pages.ReadPage()
		if err == nil {
			c.page, err = newParquetPage(page)
			c.remember(page.Dictionary())
		}
		return err
	})
	if errors.Is(err, io.EOF) {
		err = c.pages.Close()
		c.pages = nil
		c.remember(nil)
	}
	return err
}

// remember keeps what values say if they are those of the dictionary before: mostly, all pages of a
// row group share one.
func (c *parquetColumn) remember(dictionary parquet.Dictionary) {
	if dictionary == nil || dictionary != c.dictionary {
		c.said.forget()
	}
	c.dictionary = dictionary
}

// guarded calls the library, and has it panic over no broken file: that is an error.
func guarded(call func() error) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("it can't be decoded: %v", what)
		}
	}()
	return call()
}

// release gives the page back, whose values are used up.
func (c *parquetColumn) release() {
	if c.page.page != nil {
		parquet.Release(c.page.page)
	}
	c.page, c.at = parquetPage{}, place{}
}

func (c *parquetColumn) close() error {
	c.release()
	if c.pages == nil {
		return nil
	}
	err := c.pages.Close()
	c.pages = nil
	return err
}
