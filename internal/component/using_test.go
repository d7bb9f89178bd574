package component

import (
	"fmt"
	"testing"
)

// line keeps what is logged.
type line struct {
	testing.TB
	text string
}

func (l *line) Helper() {}

func (l *line) Logf(format string, args ...any) {
	l.text = "    file_test.go:7: " + fmt.Sprintf(format, args...) + "\n"
}

func TestWhatATestSaysItUsesCanBeRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, version string }{{"DynamoDB Local", "3.1.0"}, {`a "quoted\" one`, "v1"}, {"", ""}} {
		var l line
		Using(&l, c.name, c.version)
		if name, version, ok := Used(l.text); !ok || name != c.name || version != c.version {
			t.Errorf("%q is read as %q, %q, %v", l.text, name, version, ok)
		}
	}
	for _, s := range []string{"", "running on empty\n", `running on "one"`, `running on "one" version "two" and more`} {
		if name, version, ok := Used(s); ok {
			t.Errorf("%q is read as %q, %q", s, name, version)
		}
	}
}
