package component

import (
	"regexp"
	"strconv"
	"testing"
)

// Using writes into a test's log that the test, with its subtests, runs on a real component, so that those who run the suites can count
// what ran on what. Whatever this package or package labtest starts says so by itself.
func Using(t testing.TB, name, version string) {
	t.Helper()
	t.Logf("running on %q version %q", name, version)
}

var using = regexp.MustCompile(`running on ("(?:[^"\\]|\\.)*") version ("(?:[^"\\]|\\.)*")\n?$`)

// Used reads a line of a test's log: ok reports whether [Using] has written it.
func Used(line string) (name, version string, ok bool) {
	m := using.FindStringSubmatch(line)
	if m == nil {
		return "", "", false
	}
	name, err1 := strconv.Unquote(m[1])
	version, err2 := strconv.Unquote(m[2])
	return name, version, err1 == nil && err2 == nil
}
