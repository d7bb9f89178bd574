package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// options are the flags.
type options struct {
	command string   // one of commands
	out     string   // a directory, or a file if it ends with .tar
	arch    []string // as Go names them
	name    string   // registry, repository and tag
	source  string   // directory of the main module
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

// shippedName is the name that deploy/kubernetes gives the image of a command as shipped.
func shippedName(command string) string { return "registry.example.com/" + command + ":v0.1.0" }

// architectures that a cluster of EC2 instances can have.
var architectures = []string{"amd64", "arm64"}
