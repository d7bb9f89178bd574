//go:build !unix

package defender

import "time"

// processorTime is unknown on this system.
func processorTime() time.Duration { return 0 }
