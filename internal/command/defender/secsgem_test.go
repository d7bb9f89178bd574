package defender

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
)

// TestCollectNamesAllWrongFlags: of a plan too, without connecting to anything.
func TestCollectNamesAllWrongFlags(t *testing.T) {
	t.Parallel()
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte("schema: 1\ntypes:\n  etcher: {svids: {Clock: 1}, clock: Time}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{[]string{"--secs-gem", plan, "--rate", "5", "--data", "x"}, []string{
			"--rate is of replayed traces: leave it out with --secs-gem", "--data is of replayed traces",
			"--secs-gem: " + plan + " has 3 faults", `types.etcher.clock: there is no "Time" among svids: add it there`,
			"types.etcher.chambers: there is none: describe at least one", "tools: there are 0: list 1 to 10000"}},
		{[]string{"--secs-gem", "/nowhere"}, []string{"--secs-gem: reading the collection plan"}},
		{[]string{"--ledger", "x"}, []string{"--ledger is of --secs-gem"}},
	} {
		var out, errs bytes.Buffer
		if code := command.Run(Binary(), append([]string{"collect"}, test.args...), &out, &errs); code != command.ExitUsage {
			t.Errorf("%q: exit code %d", test.args, code)
		}
		for _, want := range test.want {
			if !strings.Contains(errs.String(), want) {
				t.Errorf("%q: the error is\n%s\nwant in it: %s", test.args, &errs, want)
			}
		}
	}
}
