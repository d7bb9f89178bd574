package trace

import "fmt"

// rows are the rows of a file after the one that names the columns. Fields are numbered from 0.
type rows interface {
	// next goes to the next row. The error is [io.EOF] after the last, a *badRow if the row can't
	// be read and those after it can, or another one.
	next() error
	line(field int) int // of the file, from 1
	text(field int) string
	is(field int, text string) bool   // reports whether text(field) is that
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
