package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Boot is the first process of a machine, in its namespaces but for that of cgroups: it
// waits until the lab has placed it, on file descriptor 3, makes the machine's file system,
// and becomes the program that runs the machine. It returns only if that fails.
func Boot() error {
	// The namespace of cgroups is this thread's, and the others end when it becomes another program.
	runtime.LockOSThread()
	var b boot
	if err := json.NewDecoder(os.NewFile(3, "orders")).Decode(&b); err != nil {
		return fmt.Errorf("waiting for what to boot: %w", err)
	}
	steps := []step{
		{"entering a namespace of its cgroups", func() error { return unix.Unshare(unix.CLONE_NEWCGROUP) }},
		{"keeping mounts to itself", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"setting the host name", func() error { return unix.Sethostname([]byte(b.ID)) }},
		{"writing its files", b.writeFiles},
		{"mounting its programs", b.mountPrograms},
		{"mounting what the kernel shows", b.mountKernel},
		{"mounting its cgroups", b.mountCgroups},
		{"making its devices", b.mountDevices},
		{"mounting the shared folder", b.mountShare}, // which may be below what was mounted before
		{"hiding the settings of the whole kernel", b.hideSettings},
	}
	if b.Systemd {
		steps = append(steps, step{"preparing systemd", b.prepareSystemd})
	}
	for _, s := range append(steps, step{"entering it", b.enter}) {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	if b.Systemd {
		return execSystemd()
	}
	return unix.Exec(Program, []string{"lab", "init"}, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", "TERM=dumb", CgroupVariable + "=" + b.Cgroup})
}

// step is a part of the boot.
type step struct {
	what string
	do   func() error
}

func (b *boot) path(names ...string) string {
	return filepath.Join(append([]string{b.Root}, names...)...)
}

// writeFiles makes the folders of the root, and the few files that a boot image has in /etc.
func (b *boot) writeFiles() error {
	if err := unix.Mount(b.Root, b.Root, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if _, err := os.Stat(b.path(CPUs)); err == nil {
		return nil // it boots again, with the disk that it has
	}
	for _, dir := range []string{"usr", "proc", "sys", "dev", "run", "tmp", "root", "etc/lab", "mnt", "opt/lab/images", "var/lib/cloud", "var/log", "var/tmp"} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, b.path(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "passwd", "group", "nsswitch.conf", "ssl", "alternatives", "protocols", "services", "os-release"} {
		if err := copyTree(filepath.Join("/etc", name), b.path("etc", name)); err != nil {
			return err
		}
	}
	files := map[string]string{
		"etc/hostname":    b.ID + "\n",
		"etc/hosts":       "127.0.0.1 localhost\n" + b.Hosts,
		"etc/resolv.conf": "nameserver 127.0.0.1\n",
		CPUs:              strconv.Itoa(b.CPUs) + "\n",
	}
	var errs []error
	if b.Systemd {
		errs = append(errs, b.writeSystemd())
	} else {
		files[UserData] = b.UserData
	}
	for name, text := range files {
		errs = append(errs, os.WriteFile(b.path(name), []byte(text), 0o600))
	}
	return errors.Join(append(errs, b.trust(), os.Chmod(b.path("etc/hosts"), 0o644), os.Chmod(b.path("etc/resolv.conf"), 0o644))...)
}

// trust adds certificates to those that programs trust.
func (b *boot) trust() error {
	if err := os.MkdirAll(b.path("etc/ssl/certs"), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(b.path("etc/ssl/certs/ca-certificates.crt"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(b.Trust)
	return errors.Join(err, f.Close())
}

// copyTree copies a file or folder, with its links, if there is one of that name.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		target := to + strings.TrimPrefix(path, from)
		switch {
		case d.IsDir():
			return os.Mkdir(target, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644)
	})
}

// mountPrograms merges the machine's own programs with those of the machine that the lab
// runs on, read-only.
func (b *boot) mountPrograms() error {
	lower := b.Lower
	if b.Systemd {
		lower = append(lower, filepath.Join(b.CloudInit, "usr"))
	}
	if err := unix.Mount("overlay", b.path("usr"), "overlay", unix.MS_RDONLY, "lowerdir="+strings.Join(append(lower, "/usr"), ":")); err != nil {
		return err
	}
	if err := os.WriteFile(b.path(Program), nil, 0o755); err != nil {
		return err
	}
	return errors.Join(bind(b.Program, b.path(Program)), bind(b.Images, b.path(Images)))
}

// mountShare mounts the volume that all machines share.
func (b *boot) mountShare() error {
	if b.Share == "" {
		return nil
	}
	if err := os.MkdirAll(b.path(b.Share), 0o755); err != nil {
		return err
	}
	return bind(b.Share, b.path(b.Share))
}

func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("binding %s: %w", from, err)
	}
	return nil
}

func (b *boot) mountKernel() error {
	mountSys := func() error { return mount("sysfs", b.path("sys"), "") }
	if b.Systemd {
		mountSys = b.mountXen
	}
	return errors.Join(
		mount("proc", b.path("proc"), ""),
		mountSys(),
		mount("tmpfs", b.path("run"), "mode=755"),
		mount("tmpfs", b.path("tmp"), "mode=1777"))
}

func mount(kind, where, options string) error {
	if err := unix.Mount(kind, where, kind, 0, options); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", kind, where, err)
	}
	return nil
}

// mountCgroups shows the machine its own cgroups as if they were all that there are.
func (b *boot) mountCgroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	const top = "sys/fs/cgroup"
	if err := mount("tmpfs", b.path(top), "mode=755"); err != nil {
		return err
	}
	for _, h := range all {
		where := b.path(top, filepath.Base(h.mount))
		if err := os.Mkdir(where, 0o755); err != nil {
			return err
		}
		if err := mount("cgroup", where, h.options); err != nil {
			return err
		}
	}
	return nil
}

func (b *boot) mountDevices() error {
	if err := mount("tmpfs", b.path("dev"), "mode=755"); err != nil {
		return err
	}
	// The descriptor itself is of a mount outside, which can't be bound in here.
	console, err := os.Readlink("/proc/self/fd/0")
	if err != nil {
		return err
	}
	from := map[string]string{"console": console}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty", "kmsg"} {
		from[name] = "/dev/" + name
	}
	for name, device := range from {
		if err := os.WriteFile(b.path("dev", name), nil, 0o600); err != nil {
			return err
		}
		if err := bind(device, b.path("dev", name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm", "mqueue"} {
		if err := os.Mkdir(b.path("dev", name), 0o755); err != nil {
			return err
		}
	}
	errs := []error{mount("devpts", b.path("dev/pts"), "newinstance,ptmxmode=0666,mode=620,gid=5"), mount("tmpfs", b.path("dev/shm"), "")}
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		errs = append(errs, os.Symlink(to, b.path("dev", name)))
	}
	return errors.Join(errs...)
}

// settings are those of the kernel that a kubelet wants, and sets if it finds others. They
// are of the whole machine that the lab runs on.
var settings = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// hideSettings shows the machine the settings that its kubelet wants and the memory that it
// has. All settings but those of its own network are read-only, so that it can't change the
// kernel under everything else.
func (b *boot) hideSettings() error {
	all, network := b.path("proc/sys"), b.path("proc/sys/net")
	if err := errors.Join(bind(all, all), bind(network, network)); err != nil {
		return err
	}
	made := b.path("run/made")
	if err := os.Mkdir(made, 0o755); err != nil {
		return err
	}
	show := func(path, text string) error {
		file := filepath.Join(made, strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(file, []byte(text), 0o444); err != nil {
			return err
		}
		return bind(file, b.path("proc", path))
	}
	for name, value := range settings {
		if err := show("sys/"+name, value+"\n"); err != nil {
			return err
		}
	}
	meminfo, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	return errors.Join(
		show("meminfo", withMemory(string(meminfo), b.Memory)),
		unix.Mount("", all, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""))
}

// withMemory returns a /proc/meminfo that states a total, in bytes.
func withMemory(meminfo string, bytes int64) string {
	var out strings.Builder
	for line := range strings.Lines(meminfo) {
		name, _, _ := strings.Cut(line, ":")
		switch name {
		case "MemTotal", "MemFree", "MemAvailable":
			line = fmt.Sprintf("%-15s %8s kB\n", name+":", strconv.FormatInt(bytes>>10, 10))
		}
		out.WriteString(line)
	}
	return out.String()
}

// enter makes the root that of all processes of the machine.
func (b *boot) enter() error {
	if err := os.Chdir(b.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "mnt"); err != nil {
		return err
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return errors.Join(
		unix.Unmount("/mnt", unix.MNT_DETACH),
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")) // as systemd leaves it: volumes propagate to containers
}
