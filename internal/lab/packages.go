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

// Containerd is the version of the real nodes' container runtime.
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

// nodePackages returns the folder that the packages are unpacked in, outside of the
// checkout, and fetches them if need be.
func nodePackages(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "muster-ci")
	dir := filepath.Join(cache, "node-packages-"+keyOf(packages))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unfinished, err := os.MkdirTemp(cache, ".node-packages-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(unfinished) }() // nothing once it was renamed
	if err := unpackPackages(ctx, unfinished); err != nil {
		return "", fmt.Errorf("the packages of real nodes can't be had: %w", err)
	}
	if err := os.Rename(unfinished, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // another process was not faster either
			return "", fmt.Errorf("keeping the packages of real nodes: %w", err)
		}
	}
	return dir, nil
}

func unpackPackages(ctx context.Context, dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
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
	return nil
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
