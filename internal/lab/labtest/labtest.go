// Package labtest starts the laboratory in tests. It is apart from package lab so that programs don't link package testing.
package labtest

import (
	"context"
	"os"
	"testing"

	"github.com/muster-dev/muster/internal/lab"
)

// Start starts a laboratory for a test and stops it at the test's end. Where the program has not been built the test is skipped or,
// with MUSTER_REQUIRE=all in the environment, fails.
func Start(t testing.TB, o lab.Options) *lab.Lab {
	t.Helper()
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
	t.Logf("lab: %v, up after %.1f s", l.Versions, l.Seconds)
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
