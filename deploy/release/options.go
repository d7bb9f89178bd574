package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// options are the flags.
type options struct {
	tag       string
	out       string // a directory that is not there yet
	source    string // a clone of the repository
	key       string // file of a minisign key; empty: one is made
	password  string // of the key
	dryRun    bool   // HEAD is built as if it had the tag
	platforms []platform
}

// platform is what a binary runs on, as Go names it.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

var allPlatforms = []platform{
	{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

func platformNames() string {
	var out []string
	for _, p := range allPlatforms {
		out = append(out, p.String())
	}
	return strings.Join(out, ",")
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{password: os.Getenv("MINISIGN_PASSWORD")}
	var platforms string
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.tag, "tag", "", "the tag to release, as in v0.1.0")
	f.StringVar(&o.out, "out", "", "a directory that is not there yet, for the files")
	f.StringVar(&o.source, "source", "../..", "a clone of the repository, with the tag")
	f.StringVar(&o.key, "key", "", "file with the minisign key that signs the checksums; MINISIGN_PASSWORD is its password")
	f.BoolVar(&o.dryRun, "dry-run", false, "build HEAD as if it had the tag; without --key sign with a key that is made for this run")
	f.StringVar(&platforms, "platforms", platformNames(), "what to build for, with commas between")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("arguments %q: there are only flags", f.Args())
	}
	for name := range strings.SplitSeq(platforms, ",") {
		system, arch, _ := strings.Cut(strings.TrimSpace(name), "/")
		o.platforms = append(o.platforms, platform{system, arch})
	}
	return o, nil
}

var version = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// check returns everything that is wrong with the options.
func (o options) check() error {
	var errs []error
	if !version.MatchString(o.tag) {
		errs = append(errs, fmt.Errorf("--tag %q is no version: give one as in v0.1.0", o.tag))
	}
	switch _, err := os.Stat(o.out); {
	case o.out == "":
		errs = append(errs, errors.New("--out is missing: name a directory to write"))
	case err == nil:
		errs = append(errs, fmt.Errorf("--out %s is there already: name a directory that is not", o.out))
	}
	if o.key == "" && !o.dryRun {
		errs = append(errs, errors.New("--key is missing: name the file of a minisign key, or give --dry-run"))
	}
	for _, p := range o.platforms {
		if !slices.Contains(allPlatforms, p) {
			errs = append(errs, fmt.Errorf("--platforms has %s: give some of %s", p, platformNames()))
		}
	}
	return errors.Join(errs...)
}
