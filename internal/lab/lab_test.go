package lab

import (
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
		p, err := Binary(dir)
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
	if binary, reason := Built(); binary != "" || !strings.Contains(reason, "go run ./internal/lab/build") {
		t.Errorf("%q, %q", binary, reason)
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
