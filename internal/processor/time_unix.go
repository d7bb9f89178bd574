//go:build unix

// Package processor measures the CPU time that this process uses.
package processor

import (
	"syscall"
	"time"
)

// Time is the time that this process has used, user and system, 0 where
// the system doesn't report it.
func Time() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
