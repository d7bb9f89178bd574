package main

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestPatchesCompile: a change of the code that a mutant changes too must not leave a patch
// that tries nothing, until the day on which the sample draws it. A patch must apply, and
// the package must compile with it.
func TestPatchesCompile(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	all, err := readMutants(os.DirFS(filepath.Join(root, patches)))
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(root)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()

	c := newCompiler(t, root, all)
	for _, m := range all {
		if _, err := l.mutate(t.Context(), m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		for _, dir := range m.dirs() {
			if err := c.check(dir, filepath.Join(l.dir, m.Name, dir)); err != nil {
				t.Errorf("%s: it does not compile: make it again for the code of today: %v", m.Name, err)
			}
		}
	}
}

// TestCompiler: the check above notices what a compiler does.
func TestCompiler(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	const dir = "internal/secret"
	m := mutant{files: []string{dir + "/secret.go"}}
	c := newCompiler(t, root, []mutant{m})
	if err := c.check(dir, t.TempDir()); err != nil {
		t.Errorf("without a change: %v", err)
	}
	for name, body := range map[string]string{
		"unknown name":    "func f() { unknown() }",
		"unused variable": "func f() { x := 1 }",
		"unused import":   `import "os"`,
		"syntax":          "func f() {",
	} {
		changed := t.TempDir()
		if err := os.WriteFile(filepath.Join(changed, "more.go"), []byte("package secret\n\n"+body+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := c.check(dir, changed); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// dirs are those of the files that a mutant changes, from the root of the module.
func (m mutant) dirs() []string {
	all := make(map[string]bool)
	for _, file := range m.files {
		all[filepath.Dir(file)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// compiler checks the types of a package. It reads what the package imports from the files
// that the go command compiled, so that it takes a fraction of a second.
type compiler struct {
	root    string
	set     *token.FileSet
	imports types.Importer
}

func newCompiler(t *testing.T, root string, all []mutant) *compiler {
	t.Helper()
	dirs := make(map[string]bool)
	for _, m := range all {
		for _, dir := range m.dirs() {
			dirs["./"+dir] = true
		}
	}

	const line = "{{if .Export}}{{.ImportPath}}\t{{.Export}}{{end}}"
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", line}, slices.Sorted(maps.Keys(dirs))...)...)
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing what the packages import: %v\n%s", err, &stderr)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		if path, file, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			exports[path] = file
		}
	}

	set := token.NewFileSet()
	return &compiler{root: root, set: set, imports: importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})}
}

// check returns the first error of a package, whose files of the same name, and others, are
// in the directory changed.
func (c *compiler) check(dir, changed string) error {
	pkg, err := build.ImportDir(filepath.Join(c.root, dir), 0)
	if err != nil {
		return err
	}
	names := make(map[string]string) // of files, with the directory to read them from
	for _, name := range pkg.GoFiles {
		names[name] = pkg.Dir
	}
	more, err := filepath.Glob(filepath.Join(changed, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range more {
		names[filepath.Base(file)] = changed
	}

	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(names)) {
		file, err := parser.ParseFile(c.set, filepath.Join(names[name], name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	// Only types within the package are compared, so its path doesn't matter but for
	// what is internal, which the go command has seen to.
	config := types.Config{Importer: c.imports}
	_, err = config.Check(pkg.Name, c.set, files, nil)
	return err
}
