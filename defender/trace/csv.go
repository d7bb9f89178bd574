package trace

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// csvBuffer is how much of a CSV file is read at once.
const csvBuffer = 64 << 10

// csvRows are the rows of a CSV file, as [csv.Reader] has them. A line without quotes, as most
// files have only, is split where it lies in the buffer; any other row is left to csv.Reader,
// which takes its bytes from the same buffer.
type csvRows struct {
	in     *bufio.Reader
	csv    *csv.Reader // reads from in, and no further than a row
	plain  int         // lines that were read without csv
	byCSV  int         // lines that csv has read
	fields int         // as many as the first line has

	// The row: by csv, or else a line of the buffer, which stays there until the next row is read.
	record []string // nil unless by csv
	row    []byte
	ends   []int // of the fields in it
}

// newCSVRows returns the rows of r, read through a buffer of a size of at least 4096 bytes: of a
// smaller one csv.Reader would make another.
func newCSVRows(r io.Reader, size int) *csvRows {
	in := bufio.NewReaderSize(r, size)
	if mark, err := in.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = in.Discard(3)
	}
	c := &csvRows{in: in, csv: csv.NewReader(in)}
	c.csv.ReuseRecord = true
	c.csv.FieldsPerRecord = -1
	return c
}

// readHeader reads the first line; [io.EOF] if there is none.
func (c *csvRows) readHeader() ([]string, error) {
	err := c.quoted()
	c.fields = len(c.record)
	return c.record, err
}

func (c *csvRows) next() error {
	if err := c.read(); err != nil {
		return err
	}
	if n := c.count(); n != c.fields {
		return &badRow{c.line(0), fmt.Sprintf("the row has %d fields and the first line names %d: add or remove fields", n, c.fields)}
	}
	return nil
}

// read goes to the next row, whatever its fields are.
func (c *csvRows) read() (err error) {
	for {
		line, ok := c.plainLine()
		if !ok {
			break
		}
		if len(line) > 0 { // csv.Reader leaves out empty lines, too
			c.record = nil
			c.split(line)
			return nil
		}
	}

	err = c.quoted()
	if syntax := new(csv.ParseError); errors.As(err, &syntax) {
		return &badRow{c.plain + syntax.StartLine, syntax.Err.Error() + ": put fields with commas or quotes in quotes, and double the quotes inside"}
	}
	return err
}

// quoted has csv.Reader read the next row, and counts the lines of it.
func (c *csvRows) quoted() (err error) {
	c.record, err = c.csv.Read()
	if syntax := new(csv.ParseError); errors.As(err, &syntax) {
		c.byCSV = syntax.Line
	}
	if err != nil {
		return err
	}
	c.byCSV, _ = c.csv.FieldPos(0)
	for _, field := range c.record {
		c.byCSV += strings.Count(field, "\n") // the row goes on in the next line
	}
	return nil
}

// plainLine takes a line that is whole in the buffer and has no quotes, without what ends it.
func (c *csvRows) plainLine() ([]byte, bool) {
	end, searched := -1, 0
	var window []byte
	for end < 0 {
		window, _ = c.in.Peek(c.in.Buffered())
		if i := bytes.IndexByte(window[searched:], '\n'); i >= 0 {
			end = searched + i
			break
		}
		searched = len(window)
		// An error, as at the end of the file, or of a line longer than the buffer, is csv's.
		if _, err := c.in.Peek(searched + 1); err != nil {
			return nil, false
		}
	}
	line := window[:end]
	if bytes.IndexByte(line, '"') >= 0 {
		return nil, false
	}
	_, _ = c.in.Discard(end + 1) // as much is in the buffer
	c.plain++
	return bytes.TrimSuffix(line, []byte{'\r'}), true
}

func (c *csvRows) split(line []byte) {
	c.row, c.ends = line, c.ends[:0]
	for i, b := range line {
		if b == ',' {
			c.ends = append(c.ends, i)
		}
	}
	c.ends = append(c.ends, len(line))
}

// bytes returns a field of a line of the buffer.
func (c *csvRows) bytes(field int) []byte {
	from := 0
	if field > 0 {
		from = c.ends[field-1] + 1
	}
	return c.row[from:c.ends[field]]
}

// count returns how many fields the row has.
func (c *csvRows) count() int {
	if c.record != nil {
		return len(c.record)
	}
	return len(c.ends)
}

func (c *csvRows) line(field int) int {
	if c.record == nil {
		return c.plain + c.byCSV
	}
	line, _ := c.csv.FieldPos(field)
	return line + c.plain
}

func (c *csvRows) text(field int) string {
	if c.record != nil {
		return c.record[field]
	}
	return string(c.bytes(field))
}

func (c *csvRows) is(field int, text string) bool {
	if c.record != nil {
		return c.record[field] == text
	}
	return string(c.bytes(field)) == text
}

func (c *csvRows) number(field int) (float64, bool) {
	if c.record != nil {
		return parse(c.record[field])
	}
	b := c.bytes(field)
	if v, ok := decimal(b); ok {
		return v, true
	}
	return parse(string(b))
}

func (c *csvRows) whole(field int) (int64, bool) {
	v, err := strconv.ParseInt(strings.TrimSpace(c.text(field)), 10, 64)
	return v, err == nil
}

func (c *csvRows) seconds(field int) (float64, bool) {
	if c.record == nil {
		if v, ok := decimal(c.bytes(field)); ok {
			return v, true
		}
	}
	return parseTime(c.text(field))
}
