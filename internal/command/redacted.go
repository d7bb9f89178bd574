package command

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strconv"

	"github.com/muster-dev/muster/internal/secret"
)

// jsonText matches a string in JSON.
var jsonText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// WriteRedacted writes v as JSON, in one line if indent is empty, with whatever looks like a secret in any of its texts redacted.
func WriteRedacted(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return err
	}
	out := jsonText.ReplaceAllFunc(b.Bytes(), func(lit []byte) []byte {
		text, err := strconv.Unquote(string(lit))
		if err != nil { // an escape that Go has not; JSON's own decoder knows it
			if json.Unmarshal(lit, &text) != nil {
				return lit
			}
		}
		redacted := secret.Redact(text)
		if redacted == text {
			return lit
		}
		again, err := json.Marshal(redacted)
		if err != nil {
			return []byte(`"[redacted]"`)
		}
		return again
	})
	_, err := w.Write(out)
	return err
}
