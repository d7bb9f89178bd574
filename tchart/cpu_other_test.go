//go:build !unix

package tchart_test

import "time"

// processorTime is not known here; benchmarks leave the figure out.
func processorTime() time.Duration { return 0 }
