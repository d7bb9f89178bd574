//go:build !unix

package processor

import "time"

// Time is unknown on this system.
func Time() time.Duration { return 0 }
