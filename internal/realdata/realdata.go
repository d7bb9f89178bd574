// Package realdata finds the recorded data that some tests use. The data is not
// part of the project: it is looked for in the folder that the environment
// variable MUSTER_DATA names or, without that, in a folder shared/data beside
// the checkout or beside one of its parents.
package realdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Path returns the path of a file or folder below the data folder, such as
// "etch/lam9600_machine.csv". Where that isn't to be had the test is skipped
// or, with MUSTER_REQUIRE=all in the environment, fails.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, reason := find(name, os.Getenv("MUSTER_DATA"))
	switch {
	case reason == "":
		return path
	case os.Getenv("MUSTER_REQUIRE") == "all":
		t.Fatalf("%s, and MUSTER_REQUIRE=all asks for it", reason)
	default:
		t.Skip(reason)
	}
	return ""
}

// find returns the path, or the reason for which there is none.
func find(name, dir string) (path, reason string) {
	if dir != "" {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if _, err := os.Stat(path); err != nil {
			return "", "recorded data " + name + " is not in the folder that MUSTER_DATA names"
		}
		return path, ""
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", "the working directory is not known: " + err.Error()
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "shared", "data", filepath.FromSlash(name))
		if _, err := os.Stat(path); err == nil {
			return path, ""
		}
		if dir == filepath.Dir(dir) {
			return "", "recorded data " + name + " is not on this machine: set MUSTER_DATA to the folder that has it"
		}
	}
}
