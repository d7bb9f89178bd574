//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lock takes an exclusive lock on file and returns what gives it back. It waits until ctx ends. The kernel gives the lock back when
// the process dies, so that a crash never leaves it behind.
func lock(ctx context.Context, file *os.File) (unlock func(), err error) {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, fmt.Errorf("locking %s, %w", file.Name(), err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("locking %s, %w", file.Name(), ctx.Err())
		case <-time.After(wait):
		}
	}
}
