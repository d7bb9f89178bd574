package defender

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/analyze"
)

func TestALongAnalysisSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	var out strings.Builder
	p := newProgress(&out, func() time.Time { return now })
	for i := range 12 { // a run a second
		now = now.Add(time.Second)
		p.show(analyze.Progress{Read: int64(i+1) * 10e6, Size: 120e6, Runs: 100 * (i + 1), Alarms: i})
	}
	if got, want := out.String(), "… 50 of 120 MB read, 500 runs, 4 alarms\n… 100 of 120 MB read, 1000 runs, 9 alarms\n"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}
