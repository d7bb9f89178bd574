// Package labtest starts the laboratory in tests. It is apart from package lab so that programs don't link package testing.
package labtest

import (
	"context"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/lab"
)

// Start starts a laboratory for a test and stops it at the test's end. Where the program has not been built the test is skipped or,
// with MUSTER_REQUIRE=all in the environment, fails.
func Start(t testing.TB, o lab.Options) *lab.Lab {
	t.Helper()
	release, err := lab.ReleaseOf(o.Kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	component.Using(t, "Kubernetes", release.Version)
	binary, reason := lab.Built(release)
	if o.RealNodes {
		component.Need(t, lab.RealNodes(t.Context()))
		component.Using(t, "containerd", release.Containerd)
	}
	if o.Systemd {
		component.Need(t, lab.SystemdNodes(t.Context()))
		component.Using(t, "cloud-init", lab.CloudInit)
	}
	switch {
	case reason == "":
	case os.Getenv("MUSTER_REQUIRE") == "all":
		t.Fatalf("%s, and MUSTER_REQUIRE=all asks for it", reason)
	default:
		t.Skip(reason)
	}
	o.Temporary = true
	l, err := lab.Run(context.WithoutCancel(t.Context()), binary, folder(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	for _, name := range slices.Sorted(maps.Keys(l.Versions)) {
		if version := l.Versions[name]; name != "Kubernetes" {
			component.Using(t, name, version)
		} else if version != release.Version {
			t.Errorf("the lab is of Kubernetes %s, not %s: bring the requirements in lab and package lab together", version, release.Version)
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

// Create creates an object, again and again while its namespace is being set up.
func Create[T any](t testing.TB, create func(context.Context, T, metav1.CreateOptions) (T, error), o T) T {
	t.Helper()
	var out T
	Eventually(t, "creating an object", func() (err error) {
		out, err = create(t.Context(), o, metav1.CreateOptions{})
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			t.Fatal(err)
		}
		return err
	})
	return out
}

// Eventually waits until something holds. Its limit is for a machine that is busy with everything else.
func Eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	EventuallyWithin(t, 2*time.Minute, what, f)
}

// EventuallyWithin is Eventually with a limit of its own.
func EventuallyWithin(t testing.TB, limit time.Duration, what string, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
