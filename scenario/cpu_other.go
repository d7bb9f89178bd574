//go:build !unix

package scenario

import "time"

func processorTime() time.Duration { return 0 }
