package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/partition/report"
)

// TestNATSPlugin: the nats command takes muster as a plugin, and runs its commands with their flags, arguments and contexts.
func TestNATSPlugin(t *testing.T) {
	t.Parallel()
	cli := filepath.Join(component.NATSCLI().Fetch(t), "nats")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	env := append(os.Environ(), asMuster+"=1", "HOME="+home, "XDG_DATA_HOME="+filepath.Join(home, "data"), "XDG_CONFIG_HOME="+filepath.Join(home, "config"))
	try := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), cli, args...)
		cmd.Env = env
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if err != nil {
			return stderr.String(), err
		}
		return stdout.String(), nil
	}
	nats := func(args ...string) string {
		t.Helper()
		out, err := try(args...)
		if err != nil {
			t.Fatalf("nats %s: %v: %s", strings.Join(args, " "), err, out)
		}
		return out
	}

	url := startWorkers(t, 3)
	nats("plugins", "register", "muster", exe)
	nats("context", "add", "fab", "--server", url)
	for name, where := range map[string][]string{"a server": {"--nats", url}, "a context": {"--context", "fab"}} {
		var group report.Group
		out := nats(append([]string{"muster", "partitions", "status", "--group", "jobs", "--output", "json"}, where...)...)
		if err := json.Unmarshal([]byte(out), &group); err != nil || len(group.Workers) != 3 {
			t.Errorf("with %s the group has %d workers, %v: %s", name, len(group.Workers), err, out)
		}
	}

	// Two arguments, in their order.
	nats("muster", "partitions", "override", "5", "jobs-1", "--nats", url, "--group", "jobs")
	out := nats("muster", "partitions", "override", "--list", "--nats", url, "--group", "jobs")
	if !strings.Contains(out, "5") || !strings.Contains(out, "jobs-1") {
		t.Errorf("the override is not listed: %s", out)
	}

	if out, err := try("muster", "partitions", "drain", "jobs-9", "--nats", url, "--group", "jobs"); err == nil || !strings.Contains(out, `"jobs-9"`) {
		t.Errorf("a worker that is not there: %v: %s", err, out)
	}
}
