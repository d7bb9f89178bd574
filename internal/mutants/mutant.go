package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mutant is a change of the code that breaks one rule.
type mutant struct {
	Name    string // of its file, without .patch
	Rule    string // what the code must do, and does not with this change
	Package string // of the test, as the go command names it
	Test    string // that must fail: a name, with / before a subtest's
	Sum     string // of the file

	patch []byte
	files []string // that it changes, from the root of the module
}

// keys are the lines of a patch's header.
var keys = []string{"Rule", "Package", "Test"}

// readMutants reads every patch of a directory, and reports all that is wrong with them.
func readMutants(dir fs.FS) ([]mutant, error) {
	names, err := fs.Glob(dir, "*.patch")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no .patch file in %s", patches)
	}
	slices.Sort(names)
	var out []mutant
	var errs []error
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err == nil {
			var m mutant
			if m, err = parseMutant(strings.TrimSuffix(name, ".patch"), data); err == nil {
				out = append(out, m)
				continue
			}
		}
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}

var changed = regexp.MustCompile(`(?m)^--- a/(.+)$`)

// parseMutant reads a patch: header lines, an empty one, and what git apply takes.
func parseMutant(name string, data []byte) (mutant, error) {
	m := mutant{Name: name, Sum: fmt.Sprintf("%x", sha256.Sum256(data))}
	header, patch, ok := strings.Cut(string(data), "\n\n")
	if !ok {
		return m, fmt.Errorf("%s.patch: no empty line ends the header: write %s, an empty line and a diff", name, strings.Join(keys, ", "))
	}
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s.patch: "+format, append([]any{name}, args...)...))
	}
	fields := map[string]*string{"Rule": &m.Rule, "Package": &m.Package, "Test": &m.Test}
	for line := range strings.Lines(header) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch field := fields[key]; {
		case field == nil:
			wrong("header line %q has none of the keys %s", strings.TrimSpace(line), strings.Join(keys, ", "))
		case *field != "":
			wrong("%s is there twice: keep one", key)
		default:
			*field = strings.TrimSpace(value)
		}
	}
	for _, key := range keys {
		if *fields[key] == "" {
			wrong("%s is missing: add the line %q", key, key+": …")
		}
	}
	if m.Package != "" && !strings.HasPrefix(m.Package, "./") {
		wrong("Package %q does not begin with ./: name a package of this module, such as ./partition", m.Package)
	}
	if m.Test != "" && !strings.HasPrefix(m.Test, "Test") && !strings.HasPrefix(m.Test, "Fuzz") {
		wrong("Test %q is not the name of a test: it begins with Test or Fuzz", m.Test)
	}
	for _, match := range changed.FindAllStringSubmatch(patch, -1) {
		file := match[1]
		if path.Clean(file) != file || !fs.ValidPath(file) {
			wrong("the diff changes %q: name files of this module", file)
		}
		m.files = append(m.files, file)
	}
	if len(m.files) == 0 {
		wrong("it changes nothing: add a diff with lines such as \"--- a/partition/delivery.go\"")
	}
	m.patch = []byte(patch)
	return m, errors.Join(errs...)
}

// pattern is the test as -run takes it.
func (m mutant) pattern() string {
	parts := strings.Split(m.Test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// reported is the test as the go command reports it.
func (m mutant) reported() string { return strings.ReplaceAll(m.Test, " ", "_") }

// where the patches are, from the root of the module.
const patches = "internal/mutants/patches"
