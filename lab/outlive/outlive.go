// Package outlive is for a process that has to tidy up after the one that started it was killed.
package outlive

import (
	"os"
	"os/signal"
	"syscall"
)

// Parent keeps this process alive when the one that started it was killed. What is written to standard output or error then has
// no reader, and SIGPIPE would end this process before it has removed its machines and its folder: Go's HTTP servers write there, for
// instance when a client goes away. Writes fail instead. The signal is caught and not ignored, since children would inherit that.
func Parent() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
