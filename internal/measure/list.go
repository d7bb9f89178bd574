package main

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// mostComplexAllowed is the complexity that the linter allows.
const mostComplexAllowed = 20

// writeList names what some figures of a tree count, so that it can be changed: the types in
// more than one file, the functions of the highest complexity, and the references between
// files that run back up.
func writeList(out io.Writer, t *tree, c *checked) {
	files := t.measured(product, rig)

	for _, typ := range scattered(measureTypes(files)) {
		paths := shown(t, slices.Sorted(maps.Keys(typ.files)))
		_, _ = fmt.Fprintf(out, "in several files: %s: %s\n", typ.name, strings.Join(paths, " "))
	}
	for _, fn := range measureFunctions(t, files).all {
		if fn.complexity > mostComplexAllowed {
			_, _ = fmt.Fprintf(out, "complex: %s: %d\n", fn.name, fn.complexity)
		}
	}

	dirs := make(map[string]bool)
	for _, f := range files {
		dirs[f.dir()] = true
	}
	for _, dir := range slices.Sorted(maps.Keys(dirs)) {
		for _, arrow := range c.arrows[dir].backward() {
			_, _ = fmt.Fprintf(out, "runs back up: %s\n", strings.Join(shown(t, arrow[:]), " -> "))
		}
	}
}

// shown are paths of a tree as they are shown: below its directory.
func shown(t *tree, paths []string) []string {
	out := slices.Clone(paths)
	for i, p := range out {
		if rel, err := filepath.Rel(t.subject.dir, p); err == nil {
			out[i] = rel
		}
	}
	return out
}
