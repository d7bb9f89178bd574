//go:build !linux

package powercut

import (
	"errors"
	"os"
)

var errNotLinux = errors.New("it needs Linux")

func privileged() error { return errNotLinux }

func parents() []string { return nil }

func claim([]string) (string, *os.File, error) { return "", nil, errNotLinux }

func dismantle(string) error { return errNotLinux }

func unmount(string) error { return errNotLinux }

func copySparse(_, _ string) error { return errNotLinux }

func sameFile(_, _ string) (bool, error) { return false, errNotLinux }
