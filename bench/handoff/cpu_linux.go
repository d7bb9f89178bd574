package handoff

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// clockTick is what /proc counts CPU time in.
//
// Source: proc_pid_stat(5), sysconf(3): _SC_CLK_TCK is 100 on Linux.
const clockTick = time.Second / 100

// processCPU returns the CPU time, user and system, that a process has used.
func processCPU(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
	}
	// The name, in parentheses, may hold anything; the third field is after it.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 14 - 3, 15 - 3
	var ticks int64
	for _, at := range []int{user, system} {
		if len(fields) <= at {
			return 0, fmt.Errorf("reading the CPU time of process %d: %d fields after the name", pid, len(fields))
		}
		n, err := strconv.ParseInt(string(fields[at]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the CPU time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// ownCPU returns the CPU time, user and system, that this process has used.
func ownCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("reading the CPU time of this process: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
