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
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
)

// Exit codes, those of Muster's own commands.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// shippedName is the name that deploy/kubernetes gives the image of a command as shipped.
func shippedName(command string) string { return "registry.example.com/" + command + ":v0.1.0" }

// architectures that a cluster of EC2 instances can have.
var architectures = []string{"amd64", "arm64"}

// options are the flags.
type options struct {
	command string   // one of commands
	out     string   // a directory, or a file if it ends with .tar
	arch    []string // as Go names them
	name    string   // registry, repository and tag
	source  string   // directory of the main module
}

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

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	var arch string
	f := flag.NewFlagSet("image", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.command, "command", "", "what runs in the image: "+strings.Join(commandNames(), ", "))
	f.StringVar(&o.out, "out", "", "a directory that is not there yet, for an OCI image layout; or a file whose name ends with .tar, for an archive of one")
	f.StringVar(&arch, "arch", strings.Join(architectures, ","), "architectures, with commas between")
	f.StringVar(&o.name, "name", "", "the image's name, which is what a containerd that imports the archive calls it; without it "+shippedName("COMMAND"))
	f.StringVar(&o.source, "source", "../..", "directory of Muster's module")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("arguments %q: there are only flags", f.Args())
	}
	for a := range strings.SplitSeq(arch, ",") {
		if a = strings.TrimSpace(a); a != "" && !slices.Contains(o.arch, a) {
			o.arch = append(o.arch, a)
		}
	}
	if o.name == "" {
		o.name = shippedName(o.command)
	}
	slices.Sort(o.arch) // the digest does not depend on their order
	return o, nil
}

// check returns everything that is wrong with the options.
func (o options) check() error {
	var errs []error
	if _, ok := commands[o.command]; !ok {
		errs = append(errs, fmt.Errorf("--command %q is unknown: give one of %s", o.command, strings.Join(commandNames(), ", ")))
	}
	switch _, err := os.Stat(o.out); {
	case o.out == "":
		errs = append(errs, errors.New("--out is missing: name a directory or a .tar file to write"))
	case err == nil && !o.archive():
		errs = append(errs, fmt.Errorf("--out %s is there already: name a directory that is not, or a file ending with .tar", o.out))
	}
	if len(o.arch) == 0 {
		errs = append(errs, fmt.Errorf("--arch names none: give one or more of %s", strings.Join(architectures, ", ")))
	}
	for _, a := range o.arch {
		if !slices.Contains(architectures, a) {
			errs = append(errs, fmt.Errorf("--arch %q is unknown: give one or more of %s", a, strings.Join(architectures, ", ")))
		}
	}
	if _, err := name.NewTag(o.name, name.StrictValidation); err != nil && o.name != shippedName("") {
		errs = append(errs, fmt.Errorf("--name: %w: give registry, repository and tag, as in %s", err, shippedName("muster-defender")))
	}
	if _, err := os.Stat(filepath.Join(o.source, "go.mod")); err != nil {
		errs = append(errs, fmt.Errorf("--source %s is no Go module: %w: name the directory of Muster's checkout", o.source, err))
	}
	return errors.Join(errs...)
}

func (o options) archive() bool { return strings.HasSuffix(o.out, ".tar") }

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
