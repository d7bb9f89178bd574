package component

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// previousCommit is the last one with the previous schema of the assignment map.
const previousCommit = "1ee25194a3d839319aa8544b5b463b1febd92223"

// PreviousMuster is the muster binary of the previous schema, built from the history of the checkout that the test runs in. Its
// folder has it as "muster". A shallow clone or an archive of the sources has no such commit: then it can't be had.
func PreviousMuster() Component {
	return Component{Name: "muster", Version: previousCommit[:12], key: "muster", tools: []string{"git", "go", "tar"}, fetch: buildPrevious}
}

func buildPrevious(ctx context.Context, dir string) error {
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("this is no checkout with a history: clone the repository")
	}
	top := strings.TrimSpace(string(root))
	if err := exec.CommandContext(ctx, "git", "-C", top, "cat-file", "-e", previousCommit+"^{commit}").Run(); err != nil {
		return fmt.Errorf("the history of this checkout does not go back to commit %s: git fetch --unshallow", previousCommit[:12])
	}
	src := filepath.Join(dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		return err
	}
	archive := filepath.Join(dir, "src.tar")
	if err := command(ctx, top, "git", "archive", "--output", archive, previousCommit); err != nil {
		return err
	}
	if err := command(ctx, src, "tar", "-xf", archive); err != nil {
		return err
	}
	if err := command(ctx, src, "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(dir, "muster"), "./cmd/muster"); err != nil {
		return err
	}
	if err := os.Remove(archive); err != nil {
		return err
	}
	return os.RemoveAll(src)
}
