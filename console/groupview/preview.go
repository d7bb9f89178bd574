package groupview

import (
	"fmt"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
)

// Preview plans as muster partitions plan does. Its error, of a worker that the group does not have, matches
// [console.ErrUnknownTarget].
func Preview(v *partition.View, w console.WhatIf) (report.Forecast, error) {
	what := partition.WhatIf{Add: w.Add, Balance: w.Balance}
	if w.Without != "" {
		what.Without = []string{w.Without}
	}
	if w.Drain != "" {
		what.Drain = []string{w.Drain}
	}
	f, err := v.Forecast(what)
	if err != nil {
		return f, fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	}
	return f, nil
}
