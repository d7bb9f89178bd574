package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Release is a version of Kubernetes that the lab can be made of. The sources are the same for all of them; each has requirements of
// its own in the lab's folder.
type Release struct {
	Minor   string // that Options.Kubernetes names, such as 1.36
	Version string // which a build from source must be told

	Containerd string // version of its real nodes' container runtime

	requirements string // file in place of go.mod; empty: that one
}

// Kubernetes is the version that the lab is made of unless Options.Kubernetes asks for another one.
const Kubernetes = "v1.36.3"

var releases = []Release{
	{Minor: "1.36", Version: Kubernetes, Containerd: Containerd},
	{Minor: "1.37", Version: "v1.37.2", Containerd: "2.4.2", requirements: "kubernetes-1.37.mod"},
}

// Releases returns the versions of Kubernetes that there are labs of, the default first.
func Releases() []Release { return slices.Clone(releases) }

// ReleaseOf returns the release of a minor version; "" is the default.
func ReleaseOf(minor string) (Release, error) {
	minor = cmp.Or(minor, releases[0].Minor)
	var known []string
	for _, r := range releases {
		if r.Minor == minor {
			return r, nil
		}
		known = append(known, r.Minor)
	}
	return Release{}, fmt.Errorf("there is no lab of Kubernetes %q: write %s", minor, strings.Join(known, " or "))
}

// RealNodes fetches and builds all that real nodes of this release are made of, in either form. The error says what this machine lacks.
func (r Release) RealNodes(ctx context.Context) error {
	if err := SystemdNodes(ctx); err != nil {
		return err
	}
	_, err := r.containerd(ctx)
	return err
}

// flags returns what go build must be told besides.
func (r Release) flags() []string {
	if r.requirements == "" {
		return nil
	}
	return []string{"-modfile=" + r.requirements}
}

// command returns the command that builds its lab.
func (r Release) command() string {
	const build = "go run ./internal/lab/build"
	if r.requirements == "" {
		return build
	}
	return build + " --kubernetes " + r.Minor
}
