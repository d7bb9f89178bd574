package main

import (
	"path"
	"slices"
	"strings"
)

// kind says what a file is for.
type kind int

const (
	product kind = iota // a production binary may link it
	rig                 // it tests, simulates, measures or shows the product
	test                // a _test.go file
	kinds
)

// profile is what this program has to be told about a module.
type profile struct {
	rig     []string // directories of the rig, with everything below them
	former  []string // directories of the rig in earlier commits
	product []string // directories below those that are product all the same
	main    string   // the package whose names and arrows stand for the module; empty: the largest
	parts   []string // directories that get a column of their own in a second table
}

// profiles are by module path. A module that is not here has the rig of the general rule
// alone: directories named examples or _examples, and those whose name ends in "test".
var profiles = map[string]profile{
	"github.com/muster-dev/muster": {
		rig: []string{
			"bench", "deploy/drill", "deploy/image", "deploy/release", "deploy/terraform", "internal", "lab",
			"nodes/fit/gentypes", "nodes/sim", "e2e",
		},
		former: []string{"scenario"},
		product: []string{
			"internal/command", "internal/listen", "internal/misuse", "internal/plot", "internal/processor",
			"internal/secret", "internal/sqlitefile",
		},
		main:  "partition",
		parts: []string{"partition", "nodes", "defender"},
	},
	"go.etcd.io/raft/v3": {rig: []string{"tools"}},
	"github.com/riverqueue/river": {
		rig: []string{
			"cmd/river/riverbench", "rivershared/cmd", "rivershared/testfactory",
			"rivershared/testsignal", "rivershared/util/testutil",
		},
	},
	"github.com/benbjohnson/litestream": {rig: []string{"internal/testingutil", "mock", "tests"}},
}

// kindOf says what a file is for by its path from the root of its module.
func (p profile) kindOf(file string) kind {
	within := func(dir string) bool { return strings.HasPrefix(file, dir+"/") }
	switch {
	case strings.HasSuffix(file, "_test.go"):
		return test
	case slices.ContainsFunc(p.product, within):
		return product
	case slices.ContainsFunc(slices.Concat(p.rig, p.former), within):
		return rig
	}
	if slices.ContainsFunc(strings.Split(path.Dir(file), "/"), isRigName) {
		return rig
	}
	return product
}

// isRigName reports whether a directory's name alone says that it belongs to the rig.
func isRigName(dir string) bool {
	return dir == "examples" || dir == "_examples" || strings.HasSuffix(dir, "test")
}
