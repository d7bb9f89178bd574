// Package powercut makes disks whose power can be cut: what was written and not synced is
// lost, as after a real cut.
//
// A disk is an ext4 file system in an image, mounted through a loop device. The kernel
// keeps what processes write in its page cache; only what they sync, and what the kernel
// writes back by itself, reaches the image. So a copy of the image, taken when the
// processes are dead, holds what the disk would hold: mounting it replays ext4's journal,
// as the next boot does. What the kernel might have written back besides, down to a torn
// write, is then copied to it: see [Keep].
//
// It needs Linux, root, mkfs.ext4 and loop devices; see [Supported].
package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
)

// imageBytes is the size of a disk. Images are sparse: a disk takes what is stored on it.
const imageBytes = 512 << 20

// Rack is a set of disks. Its methods may not be called at the same time.
type Rack struct {
	dir   string
	lock  *os.File // held as long as this process uses the directory
	disks []*disk
}

// disk is one of them.
type disk struct {
	dir        string // of the images and the mount point
	journal    Journal
	generation int // of the image that is mounted, or was last
	mounted    bool
}

func (d *disk) mountPoint() string { return filepath.Join(d.dir, "mnt") }
func (d *disk) image() string      { return filepath.Join(d.dir, "image"+strconv.Itoa(d.generation)) }

// Supported returns why disks can't be made here, nil if they can. It tries it once.
func Supported() error { return supported() }

var supported = sync.OnceValue(func() error {
	if err := privileged(); err != nil {
		return fmt.Errorf("power cuts can't be made here: %w", err)
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "sync"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("power cuts can't be made here: %s is not installed", tool)
		}
	}
	r, err := New(1, OrderedData)
	if err != nil {
		return fmt.Errorf("power cuts can't be made here: %w", err)
	}
	return r.Close()
})

// Journal is ext4's mount option "data": what its journal holds, and so what a cut keeps
// the order of.
type Journal string

const (
	// OrderedData is ext4's default: the journal has names and sizes, in their order. A
	// removal may reach the disk before data that was written earlier to another file.
	OrderedData Journal = "ordered"
	// JournaledData has the data, too: after a cut all files are as they were together at
	// one moment, and what was synced later.
	JournaledData Journal = "journal"
)

// Check returns what is wrong with a value, nil if it is one of the two.
func (j Journal) Check() error {
	if j != OrderedData && j != JournaledData {
		return fmt.Errorf("%q is none: give %s or %s", string(j), OrderedData, JournaledData)
	}
	return nil
}

// New makes n empty disks. It also removes what a process that was killed has left
// behind. The disks are in memory where /dev/shm is, else in the temporary directory.
func New(n int, j Journal) (*Rack, error) {
	dir, lock, err := claim(parents())
	if err != nil {
		return nil, fmt.Errorf("making a directory for disks: %w", err)
	}
	r := &Rack{dir: dir, lock: lock}
	for i := range n {
		d := &disk{dir: filepath.Join(dir, strconv.Itoa(i)), journal: j}
		r.disks = append(r.disks, d)
		if err := d.make(); err != nil {
			return nil, errors.Join(fmt.Errorf("making disk %d: %w", i, err), r.Close())
		}
	}
	return r, nil
}

// Dir returns the directory in which disk i is mounted. It stays the same after a cut.
func (r *Rack) Dir(i int) string { return r.disks[i].mountPoint() }

// Cut cuts the power of some disks, and gives it back: what was not synced is gone from
// them. The processes that use the disks must be dead. All images are copied before the
// first is mounted again, so that the disks lose power together.
func (r *Rack) Cut(which ...int) error { return r.CutKeeping(KeepNothing, nil, which...) }

// CutKeeping is Cut with a part of what was not synced kept, which rng draws.
func (r *Rack) CutKeeping(keep Keep, rng *rand.Rand, which ...int) error {
	for _, i := range which {
		d := r.disks[i]
		old := d.image()
		d.generation++
		if err := copySparse(old, d.image()); err != nil {
			return fmt.Errorf("cutting the power of disk %d: %w", i, err)
		}
	}
	for _, i := range which {
		if keep != KeepNothing {
			if err := r.disks[i].carry(survival{keep, rng}); err != nil {
				return fmt.Errorf("keeping a part of disk %d: %w", i, err)
			}
		}
		if err := r.disks[i].exchange(); err != nil {
			return fmt.Errorf("giving disk %d its power back: %w", i, err)
		}
	}
	return nil
}

// Sync writes everything to some disks, as the kernel does by itself in about half a
// minute.
func (r *Rack) Sync(which ...int) error {
	for _, i := range which {
		if err := command("sync", "-f", r.disks[i].mountPoint()); err != nil {
			return fmt.Errorf("syncing disk %d: %w", i, err)
		}
	}
	return nil
}

// Close removes the disks with all that is on them.
func (r *Rack) Close() error {
	if r.lock == nil {
		return nil
	}
	err := dismantle(r.dir)
	err = errors.Join(err, r.lock.Close())
	r.lock = nil
	return err
}

// make makes the disk's first image and mounts it.
func (d *disk) make() error {
	if err := os.MkdirAll(d.mountPoint(), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(d.image(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(imageBytes), f.Close()); err != nil {
		return err
	}
	if err := command("mkfs.ext4", "-q", d.image()); err != nil {
		return err
	}
	return d.mount()
}

func (d *disk) mount() error {
	if err := d.mountAt(d.mountPoint()); err != nil {
		return err
	}
	d.mounted = true
	return nil
}

// mountAt mounts the newest image.
func (d *disk) mountAt(point string) error {
	return command("mount", "-t", "ext4", "-o", "loop,noatime,data="+string(d.journal), d.image(), point)
}

// carry mounts the newest image beside the disk, and copies to it what survives.
func (d *disk) carry(s survival) error {
	beside := filepath.Join(d.dir, "copy", "mnt") // where dismantle looks as well
	if err := os.MkdirAll(beside, 0o700); err != nil {
		return err
	}
	if err := d.mountAt(beside); err != nil {
		return err
	}
	return errors.Join(s.carry(d.mountPoint(), beside), unmount(beside))
}

// exchange mounts the disk's newest image in place of the one before.
func (d *disk) exchange() error {
	if d.mounted {
		// It writes back what the cut loses, into an image that nothing reads again.
		if err := unmount(d.mountPoint()); err != nil {
			return err
		}
		d.mounted = false
	}
	if err := d.mount(); err != nil {
		return err
	}
	before := *d
	before.generation--
	return os.Remove(before.image())
}

// command runs a program; the error has what it printed.
func command(name string, args ...string) error {
	out, err := exec.Command(name, args...).CombinedOutput() //nolint:noctx // it takes milliseconds, and half of it would have to be undone
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, firstLine(out))
	}
	return nil
}

func firstLine(out []byte) string {
	for i, b := range out {
		if b == '\n' {
			return string(out[:i])
		}
	}
	return string(out)
}
