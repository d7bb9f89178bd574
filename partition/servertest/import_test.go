package servertest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What importing package partition may cost a module that has nothing else.
const (
	mostModules = 12         // in go list -m all, its own and partition's included
	mostBytes   = 11_000_000 // of the stripped binary
)

const importer = `package main

import (
	"context"
	"log"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
)

func main() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	handler := partition.HandlerFunc(func(_ context.Context, m partition.Message) error {
		log.Printf("%s: %s", m.Key, m.Data)
		return nil
	})
	worker, err := partition.New(nc, partition.Config{Name: "orders", Stream: "orders", Subject: "orders.*"}, handler)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(worker.Run(context.Background()))
}
`

// goModule is what the test reads of go mod edit -json.
type goModule struct {
	Require []struct{ Path string }
}

// alone has the go command work without the workspace and the network.
func alone() []string {
	return []string{"GOWORK=off", "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -mod=mod", "CGO_ENABLED=0"}
}

// goCommand runs the go command in a directory and returns its output.
func goCommand(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

// required returns what a go.mod requires, by path.
func required(t *testing.T, goMod string) (paths []string) {
	t.Helper()
	var m goModule
	if err := json.Unmarshal([]byte(goCommand(t, ".", nil, "mod", "edit", "-json", goMod)), &m); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Require {
		paths = append(paths, r.Path)
	}
	return paths
}

// emptyModule makes one that requires modules in the versions of the workspace: they have
// been downloaded, so that the test needs no network.
func emptyModule(t *testing.T, more string, requires []string) (dir string) {
	t.Helper()
	versions := append([]string{"list", "-m", "-f", "require {{.Path}} {{.Version}}"}, requires...)
	goMod := "module example.org/importer\n\ngo 1.26.0\n\n" + more + goCommand(t, ".", nil, versions...) + "\n"
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(goMod), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestImporter: an empty module that imports package partition gets the modules of the NATS
// client with it and no others, and its binary stays small.
func TestImporter(t *testing.T) {
	t.Parallel()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	own := "require github.com/muster-dev/muster/partition v0.1.0\n" +
		"replace github.com/muster-dev/muster/partition => " + checkout + "\n"
	dir := emptyModule(t, own, required(t, "../go.mod"))
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(importer), 0o600); err != nil {
		t.Fatal(err)
	}

	t.Run("modules", func(t *testing.T) {
		const list = "{{.Path}}"
		got := strings.Fields(goCommand(t, dir, alone(), "list", "-m", "-f", list, "all"))
		t.Logf("%d modules, at most %d: %s", len(got), mostModules, strings.Join(got, " "))
		if len(got) > mostModules {
			t.Errorf("there are %d modules, want %d at most", len(got), mostModules)
		}

		const client = "github.com/nats-io/nats.go"
		clientMod := goCommand(t, dir, alone(), "list", "-m", "-f", "{{.GoMod}}", client)
		clientOnly := emptyModule(t, "", append(required(t, clientMod), client))
		want := strings.Fields(goCommand(t, clientOnly, alone(), "list", "-m", "-f", list, "all"))
		for _, path := range got {
			if !slices.Contains(want, path) && path != "github.com/muster-dev/muster/partition" {
				t.Errorf("module %s does not come with %s", path, client)
			}
		}
	})

	t.Run("size", func(t *testing.T) {
		binary := filepath.Join(dir, "importer")
		goCommand(t, dir, alone(), "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, ".")
		info, err := os.Stat(binary)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the stripped binary has %d bytes, at most %d", info.Size(), mostBytes)
		if info.Size() > mostBytes {
			t.Errorf("the stripped binary has %d bytes, want %d at most", info.Size(), mostBytes)
		}
	})
}
