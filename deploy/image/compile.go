package main

import (
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// compile builds the command of the module in source, without C and without what depends on the machine: its directories, its build
// IDs, and the instruction set above the architecture's least.
func compile(ctx context.Context, o options, arch, to string) (binary, error) {
	b := binary{path: to, arch: arch, committed: time.Unix(0, 0).UTC()}
	to, err := filepath.Abs(to)
	if err != nil {
		return b, fmt.Errorf("compiling for %s: %w", arch, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", to, "./cmd/"+o.command)
	cmd.Dir = o.source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOWORK=") // that of the source, which has the modules that it requires
	if out, err := cmd.CombinedOutput(); err != nil {
		return b, fmt.Errorf("compiling for linux/%s: %w\n%s", arch, err, strings.TrimSpace(string(out)))
	}
	if err := checkStatic(b.path); err != nil {
		return b, fmt.Errorf("compiling for linux/%s: %w", arch, err)
	}
	info, err := buildinfo.ReadFile(b.path)
	if err != nil {
		return b, fmt.Errorf("reading what was compiled for linux/%s: %w", arch, err)
	}
	b.version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.time":
			if b.committed, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return b, fmt.Errorf("reading when the sources were committed: %w", err)
			}
		}
	}
	return b, nil
}

// checkStatic returns an error for a program that needs a loader or libraries, which the image has not.
func checkStatic(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return fmt.Errorf("%s wants a loader, and the image has none: it must be compiled with CGO_ENABLED=0", path)
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("reading which libraries %s needs: %w", path, err)
	}
	if len(libs) > 0 {
		return fmt.Errorf("%s wants %s, and the image has no libraries: it must be compiled with CGO_ENABLED=0", path, strings.Join(libs, ", "))
	}
	return nil
}
