//go:build unix

package gem

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lockFile locks a file for this process, until unlock or the process's end. The file stays: a
// process that waits to lock it would lock a removed one.
func lockFile(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another process has it: end that host, or name another file with --ledger")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
	}
	return f.Close, nil
}
