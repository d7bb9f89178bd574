package lab

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheProgramIsKnownByItsSources(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/cache")
	dir := t.TempDir()
	path := func() string {
		p, err := Binary(dir, releases[0])
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	write(t, filepath.Join(dir, "main.go"), "package main")
	one := path()
	if !strings.HasPrefix(one, "/cache/muster-ci/lab-") || path() != one {
		t.Errorf("%s, then %s", one, path())
	}
	write(t, filepath.Join(dir, "main_test.go"), "package main")
	if path() != one {
		t.Error("a test made it another program")
	}
	write(t, filepath.Join(dir, "go.mod"), "module x")
	two := path()
	write(t, filepath.Join(dir, "main.go"), "package  main")
	if two == one || path() == two {
		t.Error("a change of its sources did not")
	}
	three := path()
	if err := os.Mkdir(filepath.Join(dir, "machine"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "machine", "root.go"), "package machine")
	if path() == three {
		t.Error("a change in a folder of its sources did not")
	}
}

func TestRelease(t *testing.T) {
	t.Run("another one is another program of the same sources", func(t *testing.T) {
		dir := t.TempDir()
		seen := map[string]string{}
		for _, r := range Releases() {
			path, err := Binary(dir, r)
			if err != nil {
				t.Fatal(err)
			}
			if other, there := seen[path]; there {
				t.Errorf("%s and %s are the same program", other, r.Minor)
			}
			seen[path] = r.Minor
		}
	})
	t.Run("its requirements are its version's", func(t *testing.T) {
		source, err := Source()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range Releases() {
			text, err := os.ReadFile(filepath.Join(source, cmp.Or(r.requirements, "go.mod")))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "\tk8s.io/kubernetes "+r.Version+"\n") {
				t.Errorf("%s does not require Kubernetes %s", r.requirements, r.Version)
			}
			if !strings.HasPrefix(r.Version, "v"+r.Minor+".") {
				t.Errorf("%s is of %s", r.Version, r.Minor)
			}
		}
	})
	t.Run("its containerd is the one that is built", func(t *testing.T) {
		source, err := Source()
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(source, "containerd", "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range Releases() {
			if r.Containerd != Containerd && !strings.Contains(string(text), "\tgithub.com/containerd/containerd/v2 v"+r.Containerd+" ") {
				t.Errorf("lab/containerd does not require containerd %s", r.Containerd)
			}
		}
	})
	t.Run("the default is the first one", func(t *testing.T) {
		if r, err := ReleaseOf(""); err != nil || r.Version != Kubernetes {
			t.Errorf("%+v, %v", r, err)
		}
	})
	t.Run("an unknown one names those there are", func(t *testing.T) {
		if _, err := ReleaseOf("1.5"); err == nil || !strings.Contains(err.Error(), "write 1.36 or 1.37") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheSourcesAreFoundFromAnywhereInTheCheckout(t *testing.T) {
	source, err := Source()
	if err != nil || filepath.Base(source) != "lab" {
		t.Fatalf("%s, %v", source, err)
	}
	t.Chdir("/")
	if _, err := Source(); err == nil || !strings.Contains(err.Error(), "lab/go.mod") {
		t.Errorf("got %v", err)
	}
}

func TestWithoutTheProgramTheReasonSaysHowToBuildIt(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, r := range Releases() {
		if binary, reason := Built(r); binary != "" || !strings.Contains(reason, "`"+r.command()+"`") || !strings.Contains(reason, r.Version) {
			t.Errorf("%s: %q, %q", r.Minor, binary, reason)
		}
	}
}

func TestAProgramThatDoesNotComeUpIsAnErrorWithItsComplaint(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "lab")
	write(t, binary, "#!/bin/sh\necho no room >&2\nexit 1\n")
	if err := os.Chmod(binary, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), binary, t.TempDir(), Options{}); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("got %v", err)
	}
}
