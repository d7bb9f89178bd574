package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/misuse"
)

// subject is a directory to measure, as it was asked for.
type subject struct {
	name   string
	commit string // shown beside the name, as is its date; both may be empty
	date   string
	dir    string
}

// options are what the command line says.
type options struct {
	markdown string
	list     bool // rather than the page
	peers    []subject
}

// parse reads the command line, and reports everything that is wrong with it.
func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("measure", flag.ContinueOnError)
	flags.StringVar(&o.markdown, "markdown", "", "write the page to this file rather than to the standard output")
	flags.BoolVar(&o.list, "list", false, "list what the figures count that is to be changed, rather than write the page: types in several files, complex functions, references between files that run back up")
	if err := flags.Parse(args); err != nil {
		return o, &misuse.Error{Err: err}
	}

	var errs []error
	names := make(map[string]bool)
	for _, arg := range flags.Args() {
		s, err := parseSubject(arg)
		switch {
		case err != nil:
			errs = append(errs, err)
		case names[s.name]:
			errs = append(errs, fmt.Errorf("%q: the name %q is given twice: choose another", arg, s.name))
		}
		names[s.name] = true
		o.peers = append(o.peers, s)
	}
	if err := errors.Join(errs...); err != nil {
		return o, &misuse.Error{Err: err}
	}
	return o, nil
}

// parseSubject reads name=DIR, name@commit=DIR or name@commit@date=DIR.
func parseSubject(arg string) (subject, error) {
	label, dir, found := strings.Cut(arg, "=")
	name, version, _ := strings.Cut(label, "@")
	commit, date, hasDate := strings.Cut(version, "@")
	if !found || name == "" || dir == "" {
		return subject{}, fmt.Errorf("%q is not a directory with a name: give name=DIR or name@commit@date=DIR", arg)
	}
	if _, err := time.Parse(time.DateOnly, date); hasDate && err != nil {
		return subject{}, fmt.Errorf("%q: %q is not a date: give one such as 2026-11-22", arg, date)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return subject{}, fmt.Errorf("%q: looking for the directory: %w", arg, err)
	}
	if !info.IsDir() {
		return subject{}, fmt.Errorf("%q: %s is a file: give a directory", arg, dir)
	}
	return subject{name: name, commit: commit, date: date, dir: dir}, nil
}

// command is how to write the same page, with DIR for the directories: where they were is
// of no use to a reader.
func (o options) command() string {
	words := []string{"go run ./internal/measure"}
	if o.markdown != "" {
		words = append(words, "--markdown "+filepath.ToSlash(o.markdown))
	}
	for _, s := range o.peers {
		arg := s.label() + "=DIR"
		if strings.Contains(arg, " ") {
			arg = "'" + arg + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

// label is the name with the commit and its date, as they were given.
func (s subject) label() string {
	label := s.name
	for _, part := range []string{s.commit, s.date} {
		if part != "" {
			label += "@" + part
		}
	}
	return label
}

// ownSubject is the module around the working directory, at the commit that is checked out.
func ownSubject() (subject, error) {
	at, err := os.Getwd()
	if err != nil {
		return subject{}, err
	}
	root, _, err := moduleAround(at)
	if err != nil {
		return subject{}, fmt.Errorf("%w: run it inside the checkout", err)
	}
	return subject{
		name:   "Muster",
		commit: git(root, "describe", "--always", "--dirty", "--exclude=*"),
		date:   git(root, "log", "-1", "--format=%cs"),
		dir:    root,
	}, nil
}

// git returns what a git command prints in a directory. Without git, or outside of a
// checkout, that is nothing: the commit is then left out.
func git(dir string, args ...string) string {
	cmd := exec.CommandContext(context.Background(), "git", args...)
	cmd.Dir = dir
	out, _ := cmd.Output()
	return strings.TrimSpace(string(out))
}

// moduleAround returns the nearest directory at or above dir with a go.mod, and the path
// from there to dir, with slashes.
func moduleAround(dir string) (root, rest string, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", "", err
	}
	for root = abs; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			rest, err = filepath.Rel(root, abs)
			return root, filepath.ToSlash(rest), err
		}
		if root == filepath.Dir(root) {
			return "", "", fmt.Errorf("no go.mod in %s or above", dir)
		}
	}
}

// title is the head of a column.
func (s subject) title() string {
	title := s.name
	if s.commit != "" {
		title += " `" + s.commit + "`"
	}
	if s.date != "" {
		title += " of " + s.date
	}
	return title
}
