package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// source is a clone of the repository at the tag.
type source struct {
	dir       string
	tag       string
	revision  string
	committed time.Time // of the revision: the time of every file in an archive
}

// checkOut clones the repository at the tag. For a dry run it gives HEAD the tag, in the clone alone.
func checkOut(ctx context.Context, o options, dir string) (source, error) {
	s := source{dir: dir, tag: o.tag}
	head := "HEAD"
	if !o.dryRun {
		head = "refs/tags/" + o.tag
	}
	revision, err := git(ctx, o.source, "rev-parse", "--verify", head+"^{commit}")
	if err != nil {
		return s, fmt.Errorf("finding %s in %s: %w: tag a commit, or give --dry-run", head, o.source, err)
	}
	s.revision = revision
	// Not --branch: only a commit is sure to be what was resolved above.
	steps := [][]string{
		{"clone", "--quiet", "--no-checkout", "--shared", ".", dir},
		{"-C", dir, "checkout", "--quiet", "--detach", revision},
		{"-C", dir, "tag", "--force", o.tag, revision},
	}
	for _, step := range steps {
		if _, err := git(ctx, o.source, step...); err != nil {
			return s, fmt.Errorf("cloning %s: %w", o.source, err)
		}
	}
	at, err := git(ctx, dir, "show", "--no-patch", "--format=%cI", "HEAD")
	if err != nil {
		return s, fmt.Errorf("reading when %s was committed: %w", o.tag, err)
	}
	committed, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return s, fmt.Errorf("reading when %s was committed: %w", o.tag, err)
	}
	s.committed = committed.UTC()
	return s, nil
}

// git runs git in a directory and returns what it prints.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
