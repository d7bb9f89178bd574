package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// rows are the rows of a file after the one that names the columns. Fields are numbered from 0.
type rows interface {
	// next goes to the next row. The error is [io.EOF] after the last, a *badRow if the row can't
	// be read and those after it can, or another one.
	next() error
	line(field int) int // of the file, from 1
	text(field int) string
	number(field int) (float64, bool) // NaN where there is none
	whole(field int) (int64, bool)
	seconds(field int) (float64, bool)
}

// badRow is a row that can't be read.
type badRow struct {
	line int
	what string
}

func (b *badRow) Error() string { return fmt.Sprintf("row %d %s", b.line, b.what) }

// csvRows are the rows of a CSV file.
type csvRows struct {
	csv    *csv.Reader
	fields int // as many as the first line has
	record []string
}

func (c *csvRows) next() (err error) {
	c.record, err = c.csv.Read()
	var syntax *csv.ParseError
	switch {
	case errors.As(err, &syntax):
		return &badRow{syntax.Line, syntax.Err.Error() + ": put fields with commas or quotes in quotes, and double the quotes inside"}
	case err != nil:
		return err
	case len(c.record) != c.fields:
		return &badRow{c.line(0), fmt.Sprintf("the row has %d fields and the first line names %d: add or remove fields", len(c.record), c.fields)}
	}
	return nil
}

func (c *csvRows) line(field int) int {
	line, _ := c.csv.FieldPos(field)
	return line
}

func (c *csvRows) text(field int) string { return c.record[field] }

func (c *csvRows) number(field int) (float64, bool) { return parse(c.record[field]) }

func (c *csvRows) whole(field int) (int64, bool) {
	v, err := strconv.ParseInt(strings.TrimSpace(c.record[field]), 10, 64)
	return v, err == nil
}

func (c *csvRows) seconds(field int) (float64, bool) { return parseTime(c.record[field]) }

// readHeader reads the first line; [io.EOF] if there is none.
func (c *csvRows) readHeader() ([]string, error) {
	header, err := c.csv.Read()
	c.fields = len(header)
	return header, err
}
