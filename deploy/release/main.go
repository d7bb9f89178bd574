// Command release makes the files of a release from a tag: an archive for each platform, container images, a list of the
// components in each (CycloneDX), Helm charts, checksums, their signature (minisign) and notes. It builds from a clone of the
// tag, so what isn't committed doesn't matter, and the same tag with the same Go makes the same bytes on whatever machine.
//
//	go -C deploy/release run . --tag v0.1.0 --out "$PWD/dist" --key release.key    # MINISIGN_PASSWORD is the key's
//	go -C deploy/release run . --tag v0.1.0 --out "$PWD/dist" --dry-run            # of HEAD, signed by a key for this run
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// Exit codes, those of Muster's own commands.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}
	if err == nil {
		err = o.check()
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "release:", err)
		return exitUsage
	}
	files, err := release(ctx, o, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "release:", err)
		return exitFailed
	}
	_, _ = fmt.Fprintln(stdout, strings.Join(files, "\n"))
	return exitOK
}

// release makes the files and returns their paths.
func release(ctx context.Context, o options, log io.Writer) ([]string, error) {
	work, err := os.MkdirTemp("", "muster-release-")
	if err != nil {
		return nil, fmt.Errorf("making a directory to build in: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()

	s, err := checkOut(ctx, o, filepath.Join(work, "muster"))
	if err != nil {
		return nil, err
	}
	changes, err := os.ReadFile(filepath.Join(s.dir, "CHANGELOG.md"))
	if err != nil {
		return nil, fmt.Errorf("reading the changes: %w", err)
	}
	notes, err := notesOf(string(changes), o.tag)
	if err != nil {
		return nil, err
	}

	d := &dist{dir: o.out}
	d.add("release-notes.md", []byte(notes))
	for _, p := range o.platforms {
		_, _ = fmt.Fprintf(log, "building %s of %s for %s\n", o.tag, s.revision, p)
		if err := buildPlatform(ctx, s, p, filepath.Join(work, p.os+"-"+p.arch), d); err != nil {
			return nil, fmt.Errorf("building for %s: %w", p, err)
		}
	}
	_, _ = fmt.Fprintf(log, "making images and charts of %s\n", o.tag)
	if err := addImages(ctx, s, o.platforms, work, d); err != nil {
		return nil, err
	}
	if err := addCharts(s, d); err != nil {
		return nil, err
	}
	if err := d.sign(o, s); err != nil {
		return nil, err
	}
	return d.write()
}
