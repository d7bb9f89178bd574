package linktest

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// entry is a module of this repository: its directory, and what its go.mod may have.
type entry struct {
	dir string
	// ours are the directories of the modules of this repository that it requires. Each
	// stands before it in the list, so that requirements lead one way.
	ours []string
	// others are all other modules that it requires, for building included; nil allows any.
	others []string
	// closed modules are never published, and replace ours by their directories.
	closed bool
}

var client = []string{
	"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid",
	"github.com/klauspost/compress", "golang.org/x/crypto", "golang.org/x/sys",
}

var modules = []entry{
	{dir: "tchart", others: []string{"github.com/cespare/xxhash/v2", "github.com/klauspost/compress"}},
	{dir: "partition", others: client},
	{dir: "partition/partitionotel", ours: []string{"partition"}, others: slices.Concat(client, []string{
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/auto/sdk",
		"github.com/cespare/xxhash/v2", "github.com/go-logr/logr", "github.com/go-logr/stdr", "github.com/google/uuid",
	})},
	{dir: "partition/partitionprom", ours: []string{"partition"}, others: slices.Concat(client, []string{
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common", "github.com/prometheus/procfs",
		"github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/kylelemons/godebug", "github.com/munnerz/goautoneg",
		"google.golang.org/protobuf",
	})},
	{dir: "partition/servertest", ours: []string{"partition"}, others: slices.Concat(client, []string{
		"github.com/nats-io/nats-server/v2", "github.com/nats-io/jwt/v2", "github.com/antithesishq/antithesis-sdk-go",
		"github.com/google/go-tpm", "github.com/minio/highwayhash", "golang.org/x/time",
		"github.com/cespare/xxhash/v2",
	})},
	{dir: ".", ours: []string{"partition", "partition/partitionprom", "partition/servertest", "tchart"}},
	{dir: "bench", ours: []string{".", "partition"}, closed: true},
	{dir: "bench/codec", ours: []string{".", "tchart"}, closed: true},
	{dir: "bench/karpenter", ours: []string{"."}, closed: true},
	{dir: "deploy/image", closed: true},
	{dir: "deploy/release", closed: true},
	{dir: "deploy/terraform/generate", closed: true},
	{dir: "lab", closed: true},
	{dir: "lab/containerd", closed: true},
}

// requirements is what the test reads of a go.mod.
type requirements struct {
	Module  struct{ Path string }
	Require []struct{ Path string }
	Replace []struct{ Old, New struct{ Path string } }
}

// TestModules holds the go.mod of every module to what it may require and replace.
func TestModules(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}

	t.Run("every module is listed", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard", "go.mod", "*/go.mod")
		cmd.Dir = root
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for file := range strings.FieldsSeq(string(out)) {
			dir := filepath.Dir(file)
			if !slices.ContainsFunc(modules, func(m entry) bool { return m.dir == dir }) {
				t.Errorf("%s is in no list: say what it may require", file)
			}
		}
	})

	for i, m := range modules {
		t.Run(m.dir, func(t *testing.T) {
			for _, name := range m.ours {
				if !slices.ContainsFunc(modules[:i], func(before entry) bool { return before.dir == name }) {
					t.Errorf("the list lets it require %s, which does not stand before it", name)
				}
			}
			for _, fault := range m.faults(readRequirements(t, filepath.Join(root, m.dir))) {
				t.Error(fault)
			}
		})
	}
}

func readRequirements(t *testing.T, dir string) (r requirements) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// faults returns what a go.mod has and may not have.
func (m entry) faults(r requirements) (out []string) {
	if want := modulePath(m.dir); r.Module.Path != want {
		out = append(out, "its path is "+r.Module.Path+", want "+want)
	}
	for _, required := range r.Require {
		own, isOurs := repositoryDir(required.Path)
		switch {
		case isOurs && !slices.Contains(m.ours, own):
			out = append(out, "it requires our "+own+", which its list does not have")
		case !isOurs && m.others != nil && !slices.Contains(m.others, required.Path):
			out = append(out, "it requires "+required.Path+", which its list does not have")
		}
	}
	for _, replaced := range r.Replace {
		if _, isOurs := repositoryDir(replaced.Old.Path); !m.closed {
			out = append(out, "it replaces "+replaced.Old.Path+": go install refuses what replaces others")
		} else if !isOurs && m.dir != "lab" { // Kubernetes asks for replacements of its parts
			out = append(out, "it replaces "+replaced.Old.Path+", which is not ours")
		}
	}
	return out
}

func modulePath(dir string) string {
	if dir == "." {
		return module
	}
	return module + "/" + dir
}

// repositoryDir returns the directory of one of our modules.
func repositoryDir(path string) (dir string, ours bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// TestModuleFaults: what each kind of fault looks like.
func TestModuleFaults(t *testing.T) {
	t.Parallel()
	m := entry{dir: "partition", ours: []string{"tchart"}, others: client}
	for _, tt := range []struct{ name, goMod, want string }{
		{"what it may", `{"Require":[{"Path":"github.com/muster-dev/muster/tchart"},{"Path":"github.com/nats-io/nuid"}]}`, ""},
		{"a requirement that leads back", `{"Require":[{"Path":"github.com/muster-dev/muster"}]}`, "requires our ."},
		{"another module", `{"Require":[{"Path":"example.com/x"}]}`, "requires example.com/x"},
		{"a replacement", `{"Replace":[{"Old":{"Path":"github.com/muster-dev/muster/tchart"}}]}`, "replaces github.com/muster-dev/muster/tchart"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var r requirements
			if err := json.Unmarshal([]byte(tt.goMod), &r); err != nil {
				t.Fatal(err)
			}
			r.Module.Path = modulePath(m.dir)
			got := strings.Join(m.faults(r), "\n")
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("faults: %q, want %q", got, tt.want)
			}
		})
	}
}
