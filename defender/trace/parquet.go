package trace

import (
	"errors"
	"io"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// NewParquetReader is NewColumnReader for a Parquet file of flat columns. It reads the columns
// that are sensors or have a meaning, page by page; lines in messages are rows, from 1.
func NewParquetReader(r io.ReaderAt, size int64, name string, columns Columns) (*Reader, error) {
	reader := newReader(name)
	file, err := cells.OpenParquet(r, size)
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
		table.columns[at] = &parquetColumn{groups: file.RowGroups(), index: fields[at].Index(), convert: convert, buffer: make([]parquet.Value, parquetBatch)}
	}
	return reader.begins(table)
}

// parquetBatch is how many values of a column are decoded at once.
const parquetBatch = 512

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

func (p *parquetRows) number(field int) (float64, bool) { return p.columns[field].number() }

func (p *parquetRows) whole(field int) (int64, bool) { return p.columns[field].cell().AsWhole() }

func (p *parquetRows) seconds(field int) (float64, bool) {
	switch c := p.columns[field].cell(); c.Kind {
	case cells.Stamp:
		at := time.Unix(0, c.Whole)
		return float64(at.Unix()) + float64(at.Nanosecond())/1e9, true
	case cells.Text:
		return parseTime(c.Text)
	default:
		return c.AsNumber()
	}
}

// parquetColumn goes through the values of a column.
type parquetColumn struct {
	groups  []parquet.RowGroup // that are still to be read
	index   int                // of the column in them
	convert func(parquet.Value) cells.Cell

	pages  parquet.Pages // of the row group
	page   parquet.Page
	values parquet.ValueReader // of the page
	buffer []parquet.Value
	read   []parquet.Value // the part of buffer that is still to come
	value  parquet.Value   // of the row; it may be a part of the page
	last   string          // the last text
}

// next goes to the next value.
func (c *parquetColumn) next() error {
	for len(c.read) == 0 {
		if err := c.fill(); err != nil {
			return err
		}
	}
	c.value, c.read = c.read[0], c.read[1:]
	return nil
}

// cell returns the row's value.
func (c *parquetColumn) cell() cells.Cell {
	switch {
	case c.value.IsNull():
		return cells.Cell{}
	case c.value.Kind() == parquet.ByteArray && string(c.value.ByteArray()) == c.last:
		return cells.Cell{Kind: cells.Text, Text: c.last} // without a copy: most rows say what the one before says
	}
	cell := c.convert(c.value)
	if cell.Kind == cells.Text {
		c.last = cell.Text
	}
	return cell
}

// number returns what cell says as a number: at once of what most sensors are.
func (c *parquetColumn) number() (float64, bool) {
	if !c.value.IsNull() && c.value.Kind() == parquet.Double {
		return c.value.Double(), true
	}
	return c.cell().AsNumber()
}

func (c *parquetColumn) text() string { return c.cell().String() }

// fill decodes more values, of the next page or row group if it must.
func (c *parquetColumn) fill() error {
	if c.values != nil {
		n, err := c.values.ReadValues(c.buffer)
		c.read = c.buffer[:n]
		switch {
		case errors.Is(err, io.EOF):
			c.values = nil
			return nil // with n values, or the next page follows
		case err == nil && n == 0:
			return io.ErrNoProgress
		}
		return err
	}

	// The values that were read from the page are used up, so it isn't needed any more.
	c.release()
	if c.pages == nil {
		if len(c.groups) == 0 {
			return io.ErrUnexpectedEOF
		}
		c.pages, c.groups = c.groups[0].ColumnChunks()[c.index].Pages(), c.groups[1:]
	}
	page, err := c.pages.ReadPage()
	if errors.Is(err, io.EOF) {
		err = c.pages.Close()
		c.pages = nil
		return err
	}
	if err != nil {
		return err
	}
	c.page, c.values = page, page.Values()
	return nil
}

func (c *parquetColumn) release() {
	if c.page != nil {
		parquet.Release(c.page)
		c.page = nil
	}
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
