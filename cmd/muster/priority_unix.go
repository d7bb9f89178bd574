//go:build unix

package main

import "syscall"

// yieldToBroker lowers the process's priority, so that many defenders on one
// machine don't starve the one broker they all depend on.
func yieldToBroker() { _ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, 5) }
