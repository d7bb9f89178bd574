//go:build unix

package component

import (
	"context"
	"fmt"
	"os"
	"syscall"
)

// lock waits for the lock that a file stands for and returns what gives it back. The kernel gives it back when the process dies.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() { got <- syscall.Flock(int(f.Fd()), syscall.LOCK_EX) }()
	select {
	case err = <-got:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s, %w", name, err)
	}
	return func() { _ = f.Close() }, nil
}
