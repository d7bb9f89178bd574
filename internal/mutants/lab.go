package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// limit is how long a test may take to notice a mutant, without its compilation.
const limit = 60 * time.Second

// lab tries mutants on copies of the files that they change.
type lab struct {
	root string // of the module
	dir  string // of the copies
}

func newLab(root string) (*lab, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	return &lab{root: root, dir: dir}, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// passesWithout runs the tests of some mutants on the code as it is. One that fails
// anyway would catch everything.
func (l *lab) passesWithout(ctx context.Context, all []mutant) error {
	tests := make(map[string]map[string]mutant)
	for _, m := range all {
		if tests[m.Package] == nil {
			tests[m.Package] = make(map[string]mutant)
		}
		tests[m.Package][m.Test] = m
	}
	var errs []error
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		var patterns []string
		for _, name := range slices.Sorted(maps.Keys(tests[pkg])) {
			patterns = append(patterns, tests[pkg][name].pattern())
		}
		got := l.test(ctx, pkg, strings.Join(patterns, "|"), time.Duration(len(patterns))*limit)
		if got.broken != "" {
			return fmt.Errorf("%s does not compile without a mutant:\n%s", pkg, got.broken)
		}
		for _, name := range slices.Sorted(maps.Keys(tests[pkg])) {
			switch m := tests[pkg][name]; got.of[m.reported()] {
			case "pass":
			case "fail":
				errs = append(errs, fmt.Errorf("%s: test %q fails without a mutant, named by %s.patch:\n%s", pkg, m.Test, m.Name, indent(got.output[m.reported()])))
			default:
				errs = append(errs, fmt.Errorf("%s: test %q did not run, named by %s.patch: correct the name there", pkg, m.Test, m.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// try says what becomes of one mutant.
func (l *lab) try(ctx context.Context, m mutant) result {
	began := time.Now()
	r := result{mutant: m, Verdict: broken}
	args, err := l.mutate(ctx, m)
	if err != nil {
		r.Detail = err.Error()
	} else {
		r.Verdict, r.Detail = l.test(ctx, m.Package, m.pattern(), limit, args...).verdict(m)
	}
	r.Seconds = time.Since(began).Seconds()
	return r
}

// mutate makes a changed copy of what a mutant touches, and returns the flag that has the
// go command read it.
func (l *lab) mutate(ctx context.Context, m mutant) ([]string, error) {
	dir := filepath.Join(l.dir, m.Name)
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for _, file := range m.files {
		from, to := filepath.Join(l.root, file), filepath.Join(dir, file)
		data, err := os.ReadFile(from)
		if err != nil {
			return nil, fmt.Errorf("reading what the patch changes: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return nil, err
		}
		overlay.Replace[from] = to
	}
	others, err := l.others(m)
	if err != nil {
		return nil, err
	}
	for _, file := range others {
		overlay.Replace[file] = ""
	}
	apply := exec.CommandContext(ctx, "git", "apply", "-")
	apply.Dir, apply.Stdin = dir, bytes.NewReader(m.patch)
	// In a directory of a repository it would apply to nothing, without an error.
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+l.dir)
	if msg, err := apply.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the patch does not apply, make it again for the code of today: %w\n%s", err, msg)
	}
	data, err := json.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(dir, "overlay.json")
	return []string{"-overlay", name}, os.WriteFile(name, data, 0o644)
}

// others returns the files with external tests of the mutant's package, unless the named
// test is in one of them. What they import takes long to compile and to link.
func (l *lab) others(m mutant) (files []string, err error) {
	all, err := filepath.Glob(filepath.Join(l.root, m.Package, "*_test.go"))
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(m.Test, "/")
	for _, file := range all {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(f.Name.Name, "_test") {
			continue
		}
		if slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
			fn, is := d.(*ast.FuncDecl)
			return is && fn.Name.Name == name
		}) {
			return nil, nil
		}
		files = append(files, file)
	}
	return files, nil
}

// test runs tests of a package, and reads what the go command reports of them.
func (l *lab) test(ctx context.Context, pkg, pattern string, timeout time.Duration, flags ...string) outcome {
	// Without optimizations the package compiles in two thirds of the time.
	args := append([]string{"test", "-json", "-count=1", "-vet=off", "-gcflags=-N -l", "-run", pattern, "-timeout", timeout.String()}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = l.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	got := readOutcome(out)
	// Without a result the go command could not begin.
	if err != nil && len(got.of) == 0 && got.broken == "" && !got.late {
		got.broken = strings.TrimSpace(fmt.Sprintf("%s\n%s\n%v", out, stderr.String(), err))
	}
	return got
}
