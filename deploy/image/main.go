// Command image makes the container image of one of Muster's commands without a container engine: it cross-compiles static binaries and
// writes them, with the root certificates of the web and nothing else, as an OCI image layout or a tar archive of one. The same sources
// and the same Go make the same digest, on whatever machine.
//
//	go -C deploy/image run . --command muster-defender --out "$PWD/muster-defender.tar"
//	go -C deploy/image run . --command muster-nodes --out "$PWD/image" --arch arm64 --name registry.example.com/muster-nodes:v0.2.0
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
	"runtime"
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
		_, _ = fmt.Fprintln(stderr, "image:", err)
		return exitUsage
	}
	digest, err := makeImage(ctx, o, stderr)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "image:", err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(stdout, "%s@%s\n", o.name, digest)
	return exitOK
}

// makeImage compiles, puts together and writes, and returns the digest of what is to be pulled.
func makeImage(ctx context.Context, o options, log io.Writer) (string, error) {
	dir, err := os.MkdirTemp("", "muster-image-")
	if err != nil {
		return "", fmt.Errorf("making a directory to compile in: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var all []binary
	for _, arch := range o.arch {
		_, _ = fmt.Fprintf(log, "compiling %s for linux/%s with %s\n", o.command, arch, runtime.Version())
		b, err := compile(ctx, o, arch, filepath.Join(dir, o.command+"-"+arch))
		if err != nil {
			return "", err
		}
		all = append(all, b)
	}
	idx, err := index(o.command, all)
	if err != nil {
		return "", fmt.Errorf("putting the image together: %w", err)
	}
	if err := write(o, idx); err != nil {
		return "", fmt.Errorf("writing the image to %s: %w", o.out, err)
	}
	digest, err := idx.Digest()
	if err != nil {
		return "", fmt.Errorf("computing the image's digest: %w", err)
	}
	return digest.String(), nil
}
