package ingest

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// readCSV reads a table whose first line names the columns.
func readCSV(data []byte, t *table) error {
	c := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte("\ufeff"))))
	c.ReuseRecord = true
	c.FieldsPerRecord = -1
	header, err := c.Read()
	if err == io.EOF {
		return problem("", "there is nothing: the first line has to name the columns")
	}
	if err != nil {
		return problem("", "the first line: %v", err)
	}
	if err := t.header(header); err != nil {
		return err
	}

	for row := 1; ; row++ {
		record, err := c.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			why := err
			if syntax := new(csv.ParseError); errors.As(err, &syntax) {
				why = syntax.Err
			}
			t.problems.add("", row, "%v: put fields with commas or quotes in quotes, and double the quotes inside", why)
			return errEnough // what follows an open quote is noise
		}
		if len(record) != len(t.columns) {
			if !t.problems.add("", row, "has %d fields, and the first line names %d: add or remove fields", len(record), len(t.columns)) {
				return errEnough
			}
			continue
		}
		for at, field := range record {
			if err := t.add(at, cells.Cell{Kind: cells.Text, Text: field}); err != nil {
				return err
			}
		}
	}
}
