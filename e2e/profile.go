package e2e

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// share is the part of the processor time that something took.
type share struct {
	name  string
	share float64
}

// parts are what a stack is counted for: the first part that names a function
// anywhere on it, else the one that names the innermost function that any names.
// The collector of garbage works for all.
var parts = []struct {
	name     string
	anywhere bool
	prefixes []string
}{
	{"garbage collection", true, []string{"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.bgsweep", "runtime.bgscavenge", "runtime.gcStart"}},
	{"publisher", true, []string{"github.com/muster-dev/muster/e2e.(*publisher)", "github.com/muster-dev/muster/e2e.(*phase)"}},
	{"codec", false, []string{"github.com/muster-dev/muster/tchart"}},
	{"statistics and verdicts", false, []string{"github.com/muster-dev/muster/defender/uchart", "github.com/muster-dev/muster/defender/spc",
		"github.com/muster-dev/muster/defender/pca", "github.com/muster-dev/muster/defender/strategy", "gonum.org/"}},
	{"store", false, []string{"github.com/muster-dev/muster/defender/sqlite", "modernc.org/", "database/sql"}},
	{"NATS server", false, []string{"github.com/nats-io/nats-server"}},
	{"NATS clients", false, []string{"github.com/nats-io/nats.go", "github.com/nats-io/nats%2ego", "github.com/muster-dev/muster/partition"}},
	{"rest of the defender", false, []string{"github.com/muster-dev/muster/defender"}},
}

// restOfTime is the runtime's own and whatever else there is.
const restOfTime = "runtime and others"

// partOf returns the part that a stack, the innermost function first, counts for.
func partOf(stack []string) string {
	has := func(f string, prefixes []string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(f, p) })
	}
	for _, p := range parts {
		if p.anywhere && slices.ContainsFunc(stack, func(f string) bool { return has(f, p.prefixes) }) {
			return p.name
		}
	}
	for _, f := range stack {
		for _, p := range parts {
			if !p.anywhere && has(f, p.prefixes) {
				return p.name
			}
		}
	}
	return restOfTime
}

// shares reads a profile and divides the processor time among the parts, the
// largest first.
func shares(file string) ([]share, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	defer func() { _ = f.Close() }()
	return sharesOf(f)
}

func sharesOf(r io.Reader) ([]share, error) {
	p, err := profile.Parse(r)
	if err != nil {
		return nil, fmt.Errorf("reading the profile: %w", err)
	}
	byPart, total := map[string]int64{}, int64(0)
	for _, s := range p.Sample {
		took := s.Value[1] // nanoseconds; the value before it is the number of samples
		byPart[partOf(functionsOf(s))] += took
		total += took
	}

	var list []share
	for name, took := range byPart {
		list = append(list, share{name, float64(took) / float64(max(total, 1))})
	}
	slices.SortFunc(list, func(a, b share) int { return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.name, b.name)) })
	return list, nil
}

// functionsOf returns the functions on a sample's stack, the innermost first.
func functionsOf(s *profile.Sample) []string {
	var names []string
	for _, l := range s.Location {
		for _, line := range l.Line {
			names = append(names, line.Function.Name)
		}
	}
	return names
}
