package command

import (
	"encoding/json"
	"fmt"
	"io"
)

// CheckOutput returns what is wrong with a value of the flag --output, nil for table and json.
func CheckOutput(output string) error {
	return Unless(output == "table" || output == "json", fmt.Errorf("--output is %q: give table or json", output))
}

// WriteJSON writes v as JSON that is indented for people.
func WriteJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// OrDash returns s, or a dash if it is empty, for the cell of a table.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
