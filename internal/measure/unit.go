package main

import (
	"cmp"
	"slices"
	"strings"
)

// unit is one package of one directory. Build constraints are ignored: what a platform has
// in two files is declared twice, and the first declaration counts.
type unit struct {
	path, dir, name string
	files, tests    []*source // tests: in the package itself
	external        []*source // tests in the package beside it, with _test
}

// larger reports whether a unit has more files than another of the same directory.
func (u *unit) larger(other *unit) bool { return other == nil || len(u.files) > len(other.files) }

// unitsOf returns the packages of a tree, by directory and name.
func unitsOf(t *tree) []*unit {
	found := make(map[[2]string]*unit)
	for _, f := range t.files {
		name, isExternal := f.syntax.Name.Name, false
		if f.kind == test {
			name, isExternal = strings.CutSuffix(name, "_test")
		}
		key := [2]string{f.dir(), name}
		u := found[key]
		if u == nil {
			u = &unit{path: f.importPath, dir: f.dir(), name: name}
			found[key] = u
		}
		switch {
		case isExternal:
			u.external = append(u.external, f)
		case f.kind == test:
			u.tests = append(u.tests, f)
		default:
			u.files = append(u.files, f)
		}
	}

	all := make([]*unit, 0, len(found))
	for _, u := range found {
		all = append(all, u)
	}
	slices.SortFunc(all, func(a, b *unit) int {
		return cmp.Or(cmp.Compare(a.dir, b.dir), cmp.Compare(a.name, b.name))
	})
	return all
}
