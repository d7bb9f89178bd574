package defender

import (
	"bytes"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
)

// TestIngestNamesAllWrongFlags: without connecting to anything.
func TestIngestNamesAllWrongFlags(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--http", "0.0.0.0:8090", "--max-mib", "0", "--at-once", "0", "--time-unit", "h", "--sensor-column", "s"}, []string{
			"--http 0.0.0.0:8090 can be reached from other machines: give --token-file", "--max-mib is 0", "--at-once is 0",
			`"time-unit": "h" is no unit`, `"sensor-column": and value-column belong together`}},
		{[]string{"--http", "8090", "--token-file", "/nowhere"}, []string{"write host:port", "--token-file: reading the tokens"}},
	} {
		var out, errs bytes.Buffer
		if code := command.Run(Binary(), append([]string{"ingest"}, test.args...), &out, &errs); code != command.ExitUsage {
			t.Errorf("%q: exit code %d", test.args, code)
		}
		for _, want := range test.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%q: the error is\n%s\nwant in it: %s", test.args, &errs, want)
			}
		}
	}
}
