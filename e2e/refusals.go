package e2e

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/e2e/audit"
)

// checkRefusals checks that the servers refused nothing that a part of Muster asked for:
// each has all the permissions that it needs.
func checkRefusals(r *Report, logs []string) error {
	refused := map[string]int{}
	for _, log := range logs {
		lines, err := audit.PermissionErrors(log)
		if err != nil {
			return err
		}
		for _, line := range lines {
			refused[line]++
		}
	}

	all := make([]string, 0, len(refused))
	for line, n := range refused {
		all = append(all, fmt.Sprintf("%d times %s", n, line))
	}
	slices.Sort(all)
	r.check("requests that the servers refused", "none", len(all) == 0, "%d%s", len(all), strings.Join(append([]string{""}, all...), "; "))
	return nil
}
