package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/misuse"
)

// tree is the Go code of a repository, of which one directory is measured.
type tree struct {
	subject
	profile profile
	fset    *token.FileSet
	dir     string // measured, from the root with slashes; "." for all
	files   []*source
}

// source is a Go file.
type source struct {
	path       string // from the root, with slashes
	importPath string // of its directory
	kind       kind
	generated  bool
	measured   bool // in the measured directory, and not generated
	text       []byte
	syntax     *ast.File
}

func (s *source) dir() string { return path.Dir(s.path) }

// loadAll reads the code of all subjects, and reports every one that can't be measured.
func loadAll(subjects []subject) ([]*tree, error) {
	var trees []*tree
	var errs []error
	for _, s := range subjects {
		t, err := load(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", s.label(), s.dir, err))
			continue
		}
		trees = append(trees, t)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &misuse.Error{Err: err}
	}
	return trees, nil
}

// load reads the code of a subject.
func load(s subject) (*tree, error) {
	root, dir, err := moduleAround(s.dir)
	if err != nil {
		return nil, fmt.Errorf("looking for the module: %w: give a directory of a Go module", err)
	}
	return loadFS(os.DirFS(root), s, dir)
}

// loadFS reads the module in a file system, to measure one directory of it.
func loadFS(fsys fs.FS, s subject, dir string) (*tree, error) {
	modules, names, err := list(fsys)
	if err != nil {
		return nil, err
	}
	t := &tree{subject: s, profile: profiles[modules["."]], fset: token.NewFileSet(), dir: dir}
	for _, name := range names {
		f, err := t.read(fsys, name)
		if err != nil {
			return nil, err
		}
		f.importPath = importPath(modules, path.Dir(name))
		t.files = append(t.files, f)
	}
	if !slices.ContainsFunc(t.files, func(f *source) bool { return f.measured }) {
		return nil, errors.New("there are no Go files in the directory or below, but for generated ones: give another")
	}
	return t, nil
}

// list returns the module paths by directory, and the names of all Go files.
func list(fsys fs.FS) (modules map[string]string, names []string, err error) {
	modules = make(map[string]string)
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && isSkipped(d.Name()):
			return fs.SkipDir
		case d.Name() == "go.mod":
			data, err := fs.ReadFile(fsys, name)
			modules[path.Dir(name)] = modulePath(string(data))
			return err
		case !d.IsDir() && strings.HasSuffix(name, ".go"):
			names = append(names, name)
		}
		return nil
	})
	return modules, names, err
}

// isSkipped reports whether directories of that name hold no code of the repository: the go
// command ignores them, or the code is vendored. It ignores _examples, too, which somebody
// maintains all the same.
func isSkipped(dir string) bool {
	ignored := strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_") && dir != "_examples"
	return ignored || dir == "testdata" || dir == "vendor"
}

// modulePath returns the path that a go.mod declares.
func modulePath(text string) string {
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			return strings.Trim(strings.TrimSpace(name), `"`)
		}
	}
	return ""
}

// importPath returns the import path of a directory, by the module that it is in.
func importPath(modules map[string]string, dir string) string {
	for at := dir; ; at = path.Dir(at) {
		if module, ok := modules[at]; ok {
			return path.Join(module, strings.TrimPrefix(strings.TrimPrefix(dir, at), "/"))
		}
		if at == "." {
			return dir
		}
	}
}

// read parses a file.
func (t *tree) read(fsys fs.FS, name string) (*source, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, fmt.Errorf("reading the code: %w", err)
	}
	syntax, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parsing the code: %w", err)
	}
	generated := ast.IsGenerated(syntax)
	return &source{
		path:      name,
		kind:      t.profile.kindOf(name),
		generated: generated,
		measured:  t.within(name, t.dir) && !generated,
		text:      text,
		syntax:    syntax,
	}, nil
}

// within reports whether a file is in a directory or below.
func (t *tree) within(file, dir string) bool {
	return dir == "." || strings.HasPrefix(file, dir+"/")
}

// measured returns the files that are measured and of one of some kinds.
func (t *tree) measured(which ...kind) []*source {
	var out []*source
	for _, f := range t.files {
		if f.measured && slices.Contains(which, f.kind) {
			out = append(out, f)
		}
	}
	return out
}

// part returns the same code with another directory measured.
func (t *tree) part(dir, name string) *tree {
	p := *t
	p.dir, p.name, p.profile.main = dir, name, ""
	p.files = nil
	for _, f := range t.files {
		g := *f
		g.measured = f.measured && t.within(f.path, dir)
		p.files = append(p.files, &g)
	}
	return &p
}

// mainPackage returns the directory of the package whose names and arrows are shown: the
// one that the profile names, else that with the most lines of product.
func (t *tree) mainPackage() string {
	if t.profile.main != "" && t.dir == "." {
		return t.profile.main
	}
	lines := make(map[string]int)
	for _, f := range t.measured(product) {
		lines[f.dir()] += countLines(f.text)
	}
	dirs := slices.Sorted(maps.Keys(lines))
	if len(dirs) == 0 {
		return ""
	}
	return slices.MaxFunc(dirs, func(a, b string) int { return lines[a] - lines[b] })
}

// countLines counts the lines of a text that ends with a newline.
func countLines(text []byte) int { return bytes.Count(text, []byte("\n")) }
