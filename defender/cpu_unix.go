//go:build unix

package defender

import (
	"syscall"
	"time"
)

// processorTime is the time that this process has used, user and system, 0 where
// the system doesn't report it.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
