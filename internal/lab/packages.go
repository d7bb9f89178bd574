package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// packages are what a real node's container runtime is made of: Debian's, at the versions
// of release 12. They are unpacked beside the machine's own programs, not installed.
var packages = []string{
	"containerd=1.6.20~ds1-1+deb12u3",
	"runc=1.1.5+ds1-1+deb12u1",
	"containernetworking-plugins=1.1.1+ds1-3+b5",
	"libseccomp2=2.5.4-1+deb12u1",
}

// cloudInitPackages are what a machine that boots by systemd has besides: cloud-init with what
// it imports. systemd and Python are this machine's own.
var cloudInitPackages = []string{
	"cloud-init=22.4.2-1+deb12u4",
	"libyaml-0-2=0.2.5-1",
	"python3-attr=22.2.0-1",
	"python3-certifi=2022.9.24-1",
	"python3-chardet=5.1.0+dfsg-2",
	"python3-charset-normalizer=3.0.1-2",
	"python3-configobj=5.0.8-1",
	"python3-idna=3.3-1+deb12u1",
	"python3-jinja2=3.1.2-1+deb12u3",
	"python3-json-pointer=2.3-2",
	"python3-jsonpatch=1.32-2",
	"python3-jsonschema=4.10.3-1",
	"python3-markupsafe=2.1.2-1+b1",
	"python3-netifaces=0.11.0-2+b1",
	"python3-oauthlib=3.2.2-1",
	"python3-pyrsistent=0.18.1-1+b3",
	"python3-requests=2.28.1+dfsg-1",
	"python3-serial=3.5-1.1",
	"python3-six=1.16.0-4",
	"python3-urllib3=1.26.12-1+deb12u4",
	"python3-yaml=6.0-3+b2",
}

// CloudInit is the version of the cloud-init of real nodes that boot by systemd.
const CloudInit = "22.4.2"

// Containerd is the version of the packages' container runtime.
const Containerd = "1.6.20"

// RealNodes returns nil where real nodes can be had, and otherwise the reason, in one
// sentence. Packages are fetched on the way if they are not there yet.
func RealNodes(ctx context.Context) error {
	if err := realNodes(); err != nil {
		return fmt.Errorf("real nodes can't be had here: %w", err)
	}
	_, err := nodePackages(ctx)
	return err
}

// SystemdNodes returns nil where real nodes can be had and boot by systemd, and otherwise the
// reason, in one sentence. Packages are fetched on the way if they are not there yet.
func SystemdNodes(ctx context.Context) error {
	if err := RealNodes(ctx); err != nil {
		return err
	}
	if err := systemdNodes(ctx); err != nil {
		return fmt.Errorf("real nodes can't boot by systemd here: %w", err)
	}
	_, err := cloudInit(ctx)
	return err
}

// systemdNodes says what this machine lacks for that.
func systemdNodes(ctx context.Context) error {
	if _, err := os.Stat("/usr/lib/systemd/systemd"); err != nil {
		return errors.New("systemd is not installed")
	}
	if _, err := os.Stat("/sys/fs/cgroup/systemd/cgroup.procs"); err != nil {
		return errors.New("the cgroup hierarchy of systemd is not mounted at /sys/fs/cgroup/systemd")
	}
	out, err := exec.CommandContext(ctx, "/usr/bin/python3", "--version").Output()
	if err != nil || !strings.HasPrefix(string(out), "Python 3.11.") {
		return errors.New("/usr/bin/python3 is not Python 3.11, which Debian's cloud-init 22.4 needs")
	}
	return nil
}

// realNodes says what this machine lacks.
func realNodes() error {
	if runtime.GOOS != "linux" {
		return errors.New("namespaces need Linux")
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces and cgroups need root")
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err != nil {
		if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
			return errors.New("this machine has cgroup version 2, which was not tried: boot it with version 1")
		}
		return errors.New("the memory controller of cgroup version 1 is not mounted at /sys/fs/cgroup/memory")
	}
	for _, tool := range []string{"ip", "apt-get", "dpkg"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed", tool)
		}
	}
	if link, err := os.Readlink("/bin"); err != nil || link != "usr/bin" {
		return errors.New("/bin is not a link to usr/bin, which the nodes' root is made with")
	}
	return tryNamespaces()
}

// nodePackages returns the folder of what every real node has.
func nodePackages(ctx context.Context) (string, error) {
	return unpacked(ctx, "node-packages", packages)
}

// cloudInit returns the folder of what a real node that boots by systemd has besides.
func cloudInit(ctx context.Context) (string, error) {
	return unpacked(ctx, "cloud-init", cloudInitPackages)
}

// unpacked returns the folder that some packages are unpacked in, and fetches them if need be.
func unpacked(ctx context.Context, name string, packages []string) (string, error) {
	return cached(name+"-"+keyOf(packages), func(dir string) error {
		if err := unpackPackages(ctx, dir, packages); err != nil {
			return fmt.Errorf("the packages of real nodes can't be had: %w", err)
		}
		return nil
	})
}

// cached returns a folder outside of the checkout, which fill has filled. It is there whole or not at all.
func cached(name string, fill func(dir string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "muster-ci")
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unfinished, err := os.MkdirTemp(cache, "."+name+"-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(unfinished) }()     // nothing once it was renamed
	if err := os.Chmod(unfinished, 0o755); err != nil { //nolint:gosec // machines' other users read it, too
		return "", err
	}
	if err := fill(unfinished); err != nil {
		return "", err
	}
	if err := os.Rename(unfinished, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // another process was not faster either
			return "", fmt.Errorf("keeping %s: %w", name, err)
		}
	}
	return dir, nil
}

func unpackPackages(ctx context.Context, dir string, packages []string) error {
	if err := output(ctx, dir, "apt-get", append([]string{"download", "-qq"}, packages...)...); err != nil {
		return fmt.Errorf("%w (does apt-get update help, or are there newer versions than those in package lab?)", err)
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, a := range archives {
		if err := output(ctx, dir, "dpkg", "-x", a, dir); err != nil {
			return err
		}
		if err := os.Remove(a); err != nil {
			return err
		}
	}
	return mergeUsr(ctx, dir)
}

// mergeUsr moves what packages have in /lib to /usr/lib, which it is on an installed system.
func mergeUsr(ctx context.Context, dir string) error {
	lib := filepath.Join(dir, "lib")
	if _, err := os.Stat(lib); err != nil {
		return nil //nolint:nilerr // they have nothing there
	}
	if err := output(ctx, dir, "cp", "-a", "lib/.", "usr/lib"); err != nil {
		return err
	}
	return os.RemoveAll(lib)
}

// output runs a program in a folder. The error has what it printed.
func output(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
