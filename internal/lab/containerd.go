package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// containerdTags leave out the snapshotters that nodes don't use, one of which needs C.
const containerdTags = "no_btrfs,no_devmapper,no_zfs"

// containerd returns the folder of a container runtime that real nodes have in place of the packages' one, and builds it if need be: a
// kubelet from 1.37 on needs containerd 2, which Debian 12 has not. It is empty where the packages' one will do.
func (r Release) containerd(ctx context.Context) (string, error) {
	if r.Containerd == Containerd {
		return "", nil
	}
	lab, err := Source()
	if err != nil {
		return "", err
	}
	source := filepath.Join(lab, "containerd")
	text, err := os.ReadFile(filepath.Join(source, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("reading what containerd is built from: %w", err)
	}
	key := keyOf([]string{runtime.Version(), runtime.GOARCH, containerdTags, r.Containerd, string(text)})
	return cached("containerd-"+r.Containerd+"-"+key, func(dir string) error {
		if err := buildContainerd(ctx, source, r.Containerd, dir); err != nil {
			return fmt.Errorf("building containerd %s: %w", r.Containerd, err)
		}
		return nil
	})
}

// buildContainerd builds the programs that the module in source lists as its tools.
func buildContainerd(ctx context.Context, source, version, dir string) error {
	bin := filepath.Join(dir, "usr", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil { //nolint:gosec // as on any machine
		return err
	}
	flags := "-s -w -X github.com/containerd/containerd/v2/version.Version=" + version
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-tags", containerdTags, "-ldflags", flags, "-o", bin+"/", "tool")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
