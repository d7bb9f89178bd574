//go:build !unix

package uchart_test

import "time"

// processorTime is not known here; benchmarks leave the figure out.
func processorTime() time.Duration { return 0 }
