// Package linktest holds a binary to what it may contain: packages of this module, other
// modules, and a size. Each command states its own list, so that a new import in a package
// far below is noticed in every binary that it gets into.
package linktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/muster-dev/muster"

// Binary states what the command in the test's directory may contain.
type Binary struct {
	Tags    string   // build tags, with commas between
	Own     []string // packages of this module that it may link, such as "nodes/ec2", without its own
	Modules []string // other modules that it may link; "path/..." is all modules below path
	MaxMB   float64  // most that it may take when it is stripped, in 10^6 bytes

	// Rig allows what runs scenarios and simulations. Only muster has it: what runs in
	// production doesn't link what isn't production.
	Rig bool
}

// testOnly is what no binary contains. A pattern "path/..." is path and everything below.
var testOnly = []string{
	"testing/...", "net/http/httptest", "github.com/chromedp/...",
	module + "/defender/storetest", module + "/nodes/storetest", module + "/nodes/wiretest",
	module + "/internal/browser", module + "/internal/component/...", module + "/internal/lab/labtest",
	module + "/internal/linktest", module + "/internal/output", module + "/internal/promtest", module + "/internal/realdata",
	module + "/partition/partitiontest/...", module + "/partition/servertest/...",
}

// rigOnly is what nothing contains that runs in production: scenarios with their faults and
// recorders, the simulated region, and the servers that they start.
var rigOnly = []string{
	module + "/e2e/...", module + "/local/...", module + "/sim/...", module + "/nodes/sim/...", module + "/nodes/backtest",
	module + "/internal/lab/...", module + "/internal/powercut",
	module + "/internal/command/up", module + "/internal/command/nodes/simulate", module + "/internal/command/nodes/backtest",
	module + "/broker", module + "/internal/command/broker", "github.com/nats-io/nats-server/...",
	// The generated clients know every group of the API; with them comes client-go's own
	// test machinery.
	"k8s.io/client-go/kubernetes/...", "k8s.io/client-go/testing",
	// Of Prometheus, the queries' parser is all that is needed.
	"github.com/prometheus/prometheus/promql", "github.com/prometheus/prometheus/tsdb",
}

// hooks are words by which test hooks are known in a binary's text: an environment variable
// that changes the clock, headers that make a handler slow, a flag that records processing.
var hooks = []string{"MUSTER_SIMULATED_CLOCK", "MUSTER_TEST_", "Scenario-Hold", "Scenario-Padding", "start and end of each processing"}

// linked is a package that a binary links, as go list tells of it.
type linked struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct {
		Path string
		Main bool
	}
}

// Test fails if the command in the current directory links what it may not, has become too
// large, or no longer needs something that its list allows. It prints the size.
func (b Binary) Test(t *testing.T) {
	t.Helper()
	t.Run("links only what it may", func(t *testing.T) {
		all, err := b.list(t)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range b.faults(all) {
			t.Error(fault)
		}
	})

	t.Run("is no larger than it may be", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "binary")
		if err := Build(file, b.Tags); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range b.contentFaults(content) {
			t.Error(fault)
		}
		t.Logf("%.1f MB stripped, of %.0f MB that it may take", megabytes(content), b.MaxMB)
	})
}

func megabytes(content []byte) float64 { return float64(len(content)) / 1e6 }

// Build builds the command in the current directory as it is deployed, static and stripped,
// for this machine.
func Build(file, tags string) error {
	//nolint:noctx // a build that a test waits for
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-tags", tags, "-ldflags", "-s -w", "-o", file, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %w\n%s", err, out)
	}
	return nil
}

// list returns what the command links on Linux, the command included.
func (b Binary) list(t *testing.T) ([]linked, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", b.Tags, "-json=ImportPath,Standard,Imports,Module", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing what it links: %w", err)
	}

	var all []linked
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p linked
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what it links: %w", err)
		}
		all = append(all, p)
	}
}

// faults returns what is wrong with what a binary links, and who imports it. What is only
// imported by something that is wrong itself is left out: the cause is what has to be cut.
// The last of all is the binary's own package: go list puts what is imported before what
// imports it.
func (b Binary) faults(all []linked) []string {
	wrong := map[string]string{} // import path to what is wrong with it
	used := map[string]bool{}    // entries of the lists
	for _, p := range all[:len(all)-1] {
		entry, why := b.judge(p)
		used[entry] = true
		if why != "" {
			wrong[p.ImportPath] = why
		}
	}

	var out []string
	for _, p := range all {
		if by := importers(all, p.ImportPath, wrong); wrong[p.ImportPath] != "" && len(by) > 0 {
			out = append(out, fmt.Sprintf("it links %s, which is %s; imported by %s", p.ImportPath, wrong[p.ImportPath], strings.Join(by, ", ")))
		}
	}
	for _, name := range slices.Concat(b.Own, b.Modules) {
		if !used[name] {
			out = append(out, fmt.Sprintf("it no longer links %s: take that out of its list", name))
		}
	}
	return out
}

// judge returns the entry of the lists that allows a package, or what is wrong with it; "" and
// "" for what needs no entry.
func (b Binary) judge(p linked) (entry, wrong string) {
	in := func(patterns []string, path string) int {
		return slices.IndexFunc(patterns, func(pattern string) bool { return matches(pattern, path) })
	}
	switch {
	case in(testOnly, p.ImportPath) >= 0:
		return "", "for tests only"
	case !b.Rig && in(rigOnly, p.ImportPath) >= 0:
		return "", "not for production"
	case p.Standard || p.Module == nil:
		return "", ""
	case p.Module.Main:
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		if !slices.Contains(b.Own, own) {
			return "", "not among its own packages"
		}
		return own, ""
	}
	i := in(b.Modules, p.Module.Path)
	if i < 0 {
		return "", "of module " + p.Module.Path + " that is not among its modules"
	}
	return b.Modules[i], ""
}

// contentFaults returns what is wrong with a binary's file.
func (b Binary) contentFaults(content []byte) []string {
	var out []string
	if size := megabytes(content); size > b.MaxMB {
		out = append(out, fmt.Sprintf("it takes %.1f MB, and may take %.0f MB", size, b.MaxMB))
	}
	for _, hook := range hooks {
		if !b.Rig && bytes.Contains(content, []byte(hook)) {
			out = append(out, fmt.Sprintf("it contains the test hook %q", hook))
		}
	}
	return out
}

// matches reports whether a path is a pattern's: the path itself, or with "/..." at the end
// that and everything below it.
func matches(pattern, path string) bool {
	parent, below := strings.CutSuffix(pattern, "/...")
	return path == parent || below && strings.HasPrefix(path, parent+"/")
}

// importers names the packages that import another and aren't wrong themselves, three at most.
func importers(all []linked, path string, wrong map[string]string) []string {
	var by []string
	for _, p := range all {
		if wrong[p.ImportPath] == "" && slices.Contains(p.Imports, path) {
			by = append(by, strings.TrimPrefix(p.ImportPath, module+"/"))
		}
	}
	if more := len(by) - 3; more > 0 {
		by = append(by[:3], fmt.Sprintf("%d more", more))
	}
	return by
}
