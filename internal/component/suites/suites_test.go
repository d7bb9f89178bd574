package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sample runs go test on packages below testdata, read as the command reads it.
func sample(t *testing.T, wanted string, packages ...string) (shown string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json", "-count=1"}, packages...)...)
	cmd.Env = append(os.Environ(), "SUITES_SAMPLE="+wanted)
	var stream, out bytes.Buffer
	cmd.Stdout = &stream
	if err := cmd.Run(); err != nil && stream.Len() == 0 {
		t.Fatal(err)
	}
	tally := newTally(&out)
	if err := tally.read(&stream); err != nil {
		t.Fatal(err)
	}
	err = tally.report()
	return out.String(), err
}

func TestWhatRanOnWhatIsCountedAndEveryFailureAndSkipIsOne(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		wanted string
		err    string   // "" for none
		shown  []string // rows and lines, single spaces between columns
		hidden string   // what must not be shown
	}{
		{"", "", []string{"first thing 1.0 4 0 0", `second "thing" v2 1 0 0`, "5 tests of 1 packages passed, 0 failed, 0 were skipped"}, "running on"},
		{"noise", "", []string{"first thing 1.0 4 0 0", "(the end of TestNobody is not to be found in what its package printed; the package passed)", "6 tests of 1 packages passed, 0 failed, 0 were skipped"}, ""},
		{"skip", "1 tests were skipped", []string{"first thing 1.0 3 0 1", "there is no third thing", "4 tests of 1 packages passed, 0 failed, 1 were skipped"}, ""},
		{"fail", "failed: github.com/muster-dev/muster/internal/component/suites/testdata/sample",
			[]string{"first thing 1.0 3 1 0", "the third thing is broken", `second "thing" v2 1 0 0`}, ""},
		{"panic", "failed: ", []string{"first thing 1.0 3 1 0", "the first thing exploded"}, ""},
		{"parent", "failed: ", []string{"first thing 1.0 4 1 0", "the sum of it is wrong"}, ""},
	} {
		t.Run("ends with "+c.wanted, func(t *testing.T) {
			t.Parallel()
			shown, err := sample(t, c.wanted, "./testdata/sample")
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("it ends with %v, want %q", err, c.err)
			}
			flat := regexp.MustCompile(` +`).ReplaceAllString(shown, " ")
			for _, s := range c.shown {
				if !strings.Contains(flat, s) {
					t.Errorf("%q is not in\n%s", s, shown)
				}
			}
			if c.hidden != "" && strings.Contains(shown, c.hidden) {
				t.Errorf("%q is in\n%s", c.hidden, shown)
			}
		})
	}
}

func TestTheSlowestTestsAreListed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tally := newTally(&out)
	err := tally.read(strings.NewReader(`{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}
{"Action":"pass","Package":"q","Test":"TestB/sub","Elapsed":9}
{"Action":"pass","Package":"q","Test":"TestB","Elapsed":9.5}
{"Action":"pass","Package":"q"}
{"Action":"pass","Package":"p"}
`))
	if err == nil {
		err = tally.report()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tally.slowest(1), []timed{{"q", "TestB", 9.5}}; !slices.Equal(got, want) {
		t.Errorf("the slowest is %v, want %v", got, want)
	}
	if flat := regexp.MustCompile(` +`).ReplaceAllString(out.String(), " "); !strings.Contains(flat, "TestB q 9.5\nTestA p 1.0\n") {
		t.Errorf("they are not listed in\n%s", out.String())
	}
}

func TestAPackageThatDoesNotCompileIsAFailureThatIsShown(t *testing.T) {
	t.Parallel()
	shown, err := sample(t, "", "./testdata/broken", "./testdata/sample")
	if err == nil || !strings.Contains(err.Error(), "testdata/broken") || strings.Contains(err.Error(), "testdata/sample") {
		t.Errorf("it ends with %v", err)
	}
	if !strings.Contains(shown, "too many return values") {
		t.Errorf("the compiler's words are not in\n%s", shown)
	}
}

func TestARunThatIsCutOffOrEmptyIsAFailure(t *testing.T) {
	t.Parallel()
	for stream, want := range map[string]string{
		"":                     "no test ran",
		"go: no such module\n": "no test ran",
		`{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}
`: "the run ended before these did: p",
	} {
		var out bytes.Buffer
		tally := newTally(&out)
		if err := tally.read(strings.NewReader(stream)); err != nil {
			t.Fatal(err)
		}
		if err := tally.report(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q ends with %v, want %q", stream, err, want)
		}
		if strings.HasPrefix(stream, "go: ") && !strings.HasPrefix(out.String(), stream) {
			t.Errorf("what go said is lost: %q", out.String())
		}
	}
}

func TestThePackagesWithRealComponentsAreFoundByWhatTheyImport(t *testing.T) {
	t.Parallel()
	packages, err := withComponents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"console", "defender/cassandra", "local", "nodes/dynamo", "nodes/kube", "internal/component", "partition", "partition/servertest"} {
		if !slices.Contains(packages, "github.com/muster-dev/muster/"+want) {
			t.Errorf("%s is not among %v", want, packages)
		}
	}
	if slices.Contains(packages, "github.com/muster-dev/muster/partition/plan") {
		t.Errorf("%v are too many", packages)
	}
}
