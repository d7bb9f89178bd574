// Package labtest starts the laboratory in tests. It is apart from package lab so that programs don't link package testing.
package labtest

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/lab"
)

// Start starts a laboratory for a test and stops it at the test's end. Where the program has not been built the test is skipped or,
// with MUSTER_REQUIRE=all in the environment, fails.
func Start(t testing.TB, o lab.Options) *lab.Lab {
	t.Helper()
	component.Using(t, "Kubernetes", lab.Kubernetes)
	binary, reason := lab.Built()
	switch {
	case reason == "":
	case os.Getenv("MUSTER_REQUIRE") == "all":
		t.Fatalf("%s, and MUSTER_REQUIRE=all asks for it", reason)
	default:
		t.Skip(reason)
	}
	l, err := lab.Run(context.WithoutCancel(t.Context()), binary, folder(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	for _, name := range slices.Sorted(maps.Keys(l.Versions)) {
		if version := l.Versions[name]; name != "Kubernetes" {
			component.Using(t, name, version)
		} else if version != lab.Kubernetes {
			t.Errorf("the lab is of Kubernetes %s, not %s: bring lab/go.mod and package lab together", version, lab.Kubernetes)
		}
	}
	t.Logf("the lab was up after %.1f s", l.Seconds)
	return l
}

// folder returns a folder for the lab's data, in memory where there is such a thing: etcd writes a lot, and for nobody.
func folder(t testing.TB) string {
	if dir, err := os.MkdirTemp("/dev/shm", "muster-lab-"); err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) }) // registered before the stop, so run after it
		return dir
	}
	return t.TempDir()
}
