package component

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

const helmVersion = "4.3.1"

// Helm is the command helm, the file helm in its folder. It is built from its module, whose own go.sum states what it
// is made of. It can't be started.
func Helm() Component {
	return Component{
		Name: "Helm", Version: helmVersion, key: "helm", tools: []string{"go"},
		fetch: func(ctx context.Context, dir string) error {
			return goInstall(ctx, dir, "helm.sh/helm/v4/cmd/helm@v"+helmVersion)
		},
	}
}

// goInstall builds a command of a module at a version, path@version, into dir.
func goInstall(ctx context.Context, dir, command string) error {
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", "-ldflags", "-s -w", command)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=-buildvcs=false")
	out, err := guarded(cmd)
	if err != nil {
		return fmt.Errorf("go install %s: %w: %s", command, err, tail(string(out), 600))
	}
	return nil
}
