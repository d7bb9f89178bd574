//go:build !race

package drill

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var row = regexp.MustCompile("(?m)^\\| (Nodes\\w+|Partitions\\w+) \\| .+ \\| .+ \\| `(Test\\w+)/([a-z-]+)` \\| \\d+ \\| \\d+ \\|$")

// TestEveryAlertHasItsDrillInTheDocumentation holds docs/alerts.md to the rules and to the drills.
func TestEveryAlertHasItsDrillInTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	fires := map[string][]string{}
	for name, d := range nodeDrills {
		fires["TestNodeAlerts/"+name] = d.fires
	}
	for name, d := range groupDrills {
		fires["TestPartitionAlerts/"+name] = d.fires
	}
	rows := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(page), -1) {
		drill := m[2] + "/" + m[3]
		if rows[m[1]] != "" {
			t.Errorf("%s has two rows", m[1])
		}
		rows[m[1]] = drill
		if !slices.Contains(fires[drill], m[1]) {
			t.Errorf("%s: the drill %s, if there is one, does not fire it", m[1], drill)
		}
	}
	if n := strings.Count(string(page), "\n| Nodes") + strings.Count(string(page), "\n| Partitions"); n != len(rows) {
		t.Errorf("%d rows about alerts, %d of them complete", n, len(rows))
	}
	for _, plane := range []string{"nodes", "partitions"} {
		for _, r := range readRules(t, plane) {
			if rows[r.Alert] == "" {
				t.Errorf("%s has no row", r.Alert)
			}
			delete(rows, r.Alert)
		}
	}
	if len(rows) > 0 {
		t.Errorf("there are no rules for %v", slices.Sorted(maps.Keys(rows)))
	}
}
