package powercut

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// prefix begins the names of the directories that disks are in.
const prefix = "muster-powercut-"

// inMemory is a file system in memory on most machines.
const inMemory = "/dev/shm"

func privileged() error {
	if os.Geteuid() != 0 {
		return errors.New("mounting a disk needs root")
	}
	return nil
}

// parents are the directories that disks may be in, the best first.
func parents() []string { return []string{inMemory, os.TempDir()} }

// claim makes a directory in the first parent that takes one, and removes those in all
// parents whose processes are gone. A process holds a lock on its directory's lock file,
// which ends with it; the parent's lock keeps two processes from taking a directory that
// is just being made for an abandoned one.
func claim(parents []string) (dir string, lock *os.File, err error) {
	var errs []error
	for _, parent := range parents {
		d, l, err := claimIn(parent, dir == "")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if d != "" {
			dir, lock = d, l
		}
	}
	if dir == "" {
		return "", nil, errors.Join(errs...)
	}
	return dir, lock, nil
}

func claimIn(parent string, want bool) (dir string, lock *os.File, err error) {
	door, err := locked(filepath.Join(parent, prefix+"lock"), 0)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = door.Close() }()
	abandoned, err := filepath.Glob(filepath.Join(parent, prefix+"[0-9]*"))
	if err != nil {
		return "", nil, err
	}
	for _, d := range abandoned {
		l, err := locked(filepath.Join(d, "lock"), syscall.LOCK_NB)
		if err != nil {
			continue // its process lives
		}
		err = dismantle(d)
		_ = l.Close()
		if err != nil {
			return "", nil, fmt.Errorf("removing %s, which a process that was killed has left: %w", d, err)
		}
	}
	if !want {
		return "", nil, nil
	}
	if dir, err = os.MkdirTemp(parent, prefix); err != nil {
		return "", nil, err
	}
	lock, err = locked(filepath.Join(dir, "lock"), syscall.LOCK_NB)
	return dir, lock, err
}

// locked opens a file and locks it until it is closed.
func locked(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|how); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
	}
	return f, nil
}

// dismantle unmounts the disks in a directory and removes it.
func dismantle(dir string) error {
	beside, err := filepath.Glob(filepath.Join(dir, "*", "copy", "mnt"))
	if err != nil {
		return err
	}
	points, err := filepath.Glob(filepath.Join(dir, "*", "mnt"))
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range append(beside, points...) {
		errs = append(errs, unmount(p))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

// busyFor is how long a killed process's last files may keep a disk busy.
const busyFor = time.Second

// unmount unmounts what is mounted in a directory, if anything is; the kernel frees the
// loop device with it. A disk that stays busy is detached: it goes when nothing uses it.
func unmount(dir string) error {
	for began := time.Now(); ; {
		err := syscall.Unmount(dir, 0)
		switch {
		case errors.Is(err, syscall.EINVAL): // nothing is mounted any more
			return nil
		case errors.Is(err, syscall.EBUSY) && time.Since(began) < busyFor:
			time.Sleep(5 * time.Millisecond)
		case errors.Is(err, syscall.EBUSY):
			err = syscall.Unmount(dir, syscall.MNT_DETACH)
			fallthrough
		default:
			if err != nil {
				return fmt.Errorf("unmounting %s: %w", dir, err)
			}
		}
	}
}

// How the kernel is asked for the next data, and for the next hole, of a sparse file.
const (
	seekData = 3
	seekHole = 4
)

// copySparse copies a file, without its holes.
func copySparse(from, to string) (err error) {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	info, err := src.Stat()
	if err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	if err := dst.Truncate(info.Size()); err != nil {
		return err
	}
	for at := int64(0); ; {
		begin, err := src.Seek(at, seekData)
		if errors.Is(err, syscall.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			return err
		}
		if at, err = src.Seek(begin, seekHole); err != nil {
			return err
		}
		if _, err := io.Copy(io.NewOffsetWriter(dst, begin), io.NewSectionReader(src, begin, at-begin)); err != nil {
			return err
		}
	}
}

// sameFile reports whether two names, on a disk and on a copy of it, are of one file.
func sameFile(a, b string) (bool, error) {
	of, err := os.Lstat(a)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	with, err := os.Lstat(b)
	if err != nil {
		return false, err
	}
	x, ok1 := of.Sys().(*syscall.Stat_t)
	y, ok2 := with.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && of.Mode().IsRegular() && x.Ino == y.Ino, nil
}
