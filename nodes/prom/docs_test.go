package prom_test

import (
	"os"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes/prom"
)

func TestTheDocumentationHasEverySettingAndTheQueriesAsTheyAre(t *testing.T) {
	b, err := os.ReadFile("../../docs/nodes/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	bare := func(s string) string { return strings.Join(strings.Fields(s), "") }
	text := bare(string(b))
	described := map[string]bool{"QUERY_PENDING_PHASE": true, "QUERY_CPU_MAX": true, "QUERY_PENDING_MIN": true, "QUERY_PENDING_MAX": true} // like another
	for _, s := range prom.Settings() {
		if !strings.Contains(text, s.Env) {
			t.Errorf("%s is not there", s.Env)
		}
		if s.Default == "" || described[s.Env] {
			continue
		}
		if want := bare(s.Default); !strings.Contains(text, want) {
			t.Errorf("%s: %s is not there", s.Env, s.Default)
		}
	}
}
