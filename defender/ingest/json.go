package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// readJSON reads an array with an object for each row, or an object with an array for each
// column: what pandas writes as orient="records" and orient="list".
func readJSON(data []byte, t *table) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	r := &jsonReader{decoder: d, table: t}
	first, err := d.Token()
	switch {
	case err != nil:
		return r.fault(err)
	case first == json.Delim('['):
		err = r.records()
	case first == json.Delim('{'):
		err = r.lists()
	default:
		return problem("", "the JSON is %v: write an array of objects, one per row, or an object of arrays, one per column", first)
	}
	if err != nil {
		return r.fault(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return problem("", "something follows the table at byte %d: send one table", d.InputOffset())
	}
	return nil
}

// jsonReader gives a table its cells.
type jsonReader struct {
	decoder *json.Decoder
	table   *table
	rows    int // complete ones
}

// fault returns an error of the decoder as one of the input.
func (r *jsonReader) fault(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("it ends too early, at byte %d", r.decoder.InputOffset())
	}
	return corrupt("JSON", err)
}

// records reads an array of objects, after its bracket.
func (r *jsonReader) records() error {
	for r.decoder.More() {
		if token, err := r.decoder.Token(); err != nil {
			return err
		} else if token != json.Delim('{') {
			return r.unexpected("", token, "an object for each row")
		}
		if err := r.record(); err != nil {
			return err
		}
	}
	_, err := r.decoder.Token()
	return err
}

// record reads an object, after its brace.
func (r *jsonReader) record() error {
	for r.decoder.More() {
		at, err := r.key()
		if err != nil {
			return err
		}
		if r.table.columns[at].rows > r.rows {
			return r.problem(r.table.columns[at].name, "is there twice in a row: give it once")
		}
		// A column that begins here was missing in the rows before.
		if err := r.table.fill(at, r.rows); err != nil {
			return err
		}
		if err := r.cell(at); err != nil {
			return err
		}
	}
	if _, err := r.decoder.Token(); err != nil {
		return err
	}
	r.rows++
	for at := range r.table.columns {
		if err := r.table.fill(at, r.rows); err != nil {
			return err
		}
	}
	return nil
}

// lists reads an object of arrays, after its brace.
func (r *jsonReader) lists() error {
	for r.decoder.More() {
		before := len(r.table.columns)
		at, err := r.key()
		if err != nil {
			return err
		}
		name := r.table.columns[at].name
		if at != before {
			return problem(name, "names two columns: give each its own name")
		}
		if token, err := r.decoder.Token(); err != nil {
			return err
		} else if token != json.Delim('[') {
			return r.unexpected(name, token, "an array for each column")
		}
		for r.decoder.More() {
			if err := r.cell(at); err != nil {
				return err
			}
		}
		if _, err := r.decoder.Token(); err != nil {
			return err
		}
	}
	_, err := r.decoder.Token()
	return err
}

// key reads the name of a column and returns its number.
func (r *jsonReader) key() (int, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return 0, err
	}
	name, ok := token.(string)
	if !ok {
		return 0, r.unexpected("", token, "a name")
	}
	return r.table.column(name)
}

// cell reads a value and gives it to a column.
func (r *jsonReader) cell(at int) error {
	token, err := r.decoder.Token()
	if err != nil {
		return err
	}
	var c cells.Cell
	switch v := token.(type) {
	case nil:
	case bool:
		c.Kind = cells.Integer
		if v {
			c.Whole = 1
		}
	case string:
		c = cells.Cell{Kind: cells.Text, Text: v}
	case json.Number:
		if c.Whole, err = strconv.ParseInt(v.String(), 10, 64); err == nil {
			c.Kind = cells.Integer
		} else if c.Float, err = v.Float64(); err == nil {
			c.Kind = cells.Number
		} else {
			c = cells.Cell{Kind: cells.Text, Text: v.String()}
		}
	default:
		return r.unexpected(r.table.columns[at].name, token, "a number, text, true, false or null for each cell")
	}
	return r.table.add(at, c)
}

func (r *jsonReader) unexpected(column string, token json.Token, want string) error {
	return r.problem(column, fmt.Sprintf("there is %v: write %s", token, want))
}

func (r *jsonReader) problem(column, what string) error {
	p := &Problems{}
	p.add(column, r.rows+1, "%s", what)
	return p
}
