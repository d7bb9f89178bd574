package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

const valid = "Rule: It adds.\nPackage: ./sum\nTest: TestSum/of two\n\n--- a/sum/sum.go\n+++ b/sum/sum.go\n@@ -2,2 +2,2 @@\n \n-func Sum(a, b int) int { return a + b }\n+func Sum(a, b int) int { return a - b }\n"

func TestParseMutant(t *testing.T) {
	m, err := parseMutant("adds", []byte(valid))
	if err != nil {
		t.Fatal(err)
	}
	if m.Rule != "It adds." || m.Package != "./sum" || m.pattern() != "^TestSum$/^of two$" || m.reported() != "TestSum/of_two" || !slices.Equal(m.files, []string{"sum/sum.go"}) {
		t.Errorf("read %+v", m)
	}
}

func TestWrongHeadersAreReportedTogether(t *testing.T) {
	diff := "\n\n--- a/x.go\n+++ b/x.go\n"
	_, err := readMutants(fstest.MapFS{
		"one.patch":   {Data: []byte("Rule: r\nTests: t" + diff)},
		"two.patch":   {Data: []byte("Rule: r\nRule: s\nPackage: p\nTest: x\n\nnothing")},
		"three.patch": {Data: []byte("Rule: r")},
		"four.patch":  {Data: []byte("Rule: r\nPackage: ./p\nTest: TestX\n\n--- a/../x.go\n")},
	})
	for _, want := range []string{
		`one.patch: header line "Tests: t" has none of the keys Rule, Package, Test`, `one.patch: Package is missing`, `one.patch: Test is missing`,
		`two.patch: Rule is there twice`, `two.patch: Package "p" does not begin with ./`, `two.patch: Test "x" is not the name of a test`, `two.patch: it changes nothing`,
		`three.patch: no empty line ends the header`, `four.patch: the diff changes "../x.go"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
}

func TestWrongFlagsAreReportedTogether(t *testing.T) {
	_, err := parse([]string{"--run", "(", "--sample", "-1", "more"}, time.Now())
	for _, want := range []string{`"more" is not a flag`, "--sample -1", `--run "("`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
	if exitCode(err) != 2 {
		t.Errorf("exit code %d, want 2", exitCode(err))
	}
	if _, err := parse([]string{"--seed", "1"}, time.Now()); exitCode(err) != 2 {
		t.Errorf("a seed without a sample: %v, want an error", err)
	}
}

func TestTheSampleIsDrawnByItsSeed(t *testing.T) {
	var all []mutant
	for i := range 40 {
		all = append(all, mutant{Name: fmt.Sprintf("m%02d", i)})
	}
	draw := func(args ...string) string {
		o, err := parse(args, time.Date(2026, 11, 23, 1, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.choose(all)
		if err != nil || !slices.IsSortedFunc(got, func(a, b mutant) int { return strings.Compare(a.Name, b.Name) }) {
			t.Fatalf("%v, %v", got, err)
		}
		var names []string
		for _, m := range got {
			names = append(names, m.Name)
		}
		return strings.Join(names, " ")
	}
	if a, b := draw("--sample", "8"), draw("--sample", "8", "--seed", "20261123"); a != b || len(strings.Fields(a)) != 8 {
		t.Errorf("%q without a seed, %q with the day's", a, b)
	}
	if a, b := draw("--sample", "8", "--seed", "1"), draw("--sample", "8", "--seed", "2"); a == b {
		t.Errorf("two seeds draw %q", a)
	}
	if got := draw("--run", "m0[12]"); got != "m01 m02" {
		t.Errorf("--run chooses %q", got)
	}
	o, _ := parse([]string{"--run", "none"}, time.Now())
	if _, err := o.choose(all); err == nil {
		t.Error("a --run without a match is no error")
	}
}

func TestVerdicts(t *testing.T) {
	m := mutant{Test: "TestX/a b"}
	event := func(action, test, output string) string {
		return fmt.Sprintf(`{"Action":%q,"Test":%q,"Output":%q}`+"\n", action, test, output)
	}
	for name, tt := range map[string]struct {
		output string
		want   verdict
	}{
		"the test fails":            {event("fail", "TestX/a_b", ""), caught},
		"it passes, another fails":  {event("pass", "TestX/a_b", "") + event("fail", "TestX", ""), survived},
		"it does not run":           {event("pass", "TestX", ""), broken},
		"it is skipped":             {event("skip", "TestX/a_b", ""), broken},
		"it does not end":           {event("output", "TestX/a_b", "panic: test timed out after 1m0s\n") + event("fail", "TestX/a_b", ""), late},
		"it does not end, or fail":  {event("output", "TestX/a_b", "panic: test timed out after 1m0s\n") + `{"Action":"fail","Package":"p"}` + "\n", late},
		"the code does not compile": {`{"ImportPath":"p","Action":"build-output","Output":"undefined: x\n"}` + "\n" + `{"Action":"fail","Package":"p","FailedBuild":"p"}` + "\n", broken},
	} {
		t.Run(name, func(t *testing.T) {
			if got, why := readOutcome([]byte(tt.output)).verdict(m); got != tt.want {
				t.Errorf("%s (%s), want %s", got, why, tt.want)
			}
		})
	}
}

func TestExternalTestsAreLeftOutWhereTheyAreNotNamed(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"inner_test.go": "package sum\n\nfunc TestInner() {}\n",
		"outer_test.go": "package sum_test\n\nfunc TestOuter() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l := &lab{root: root}
	for test, want := range map[string][]string{"TestInner/sub": {filepath.Join(root, "outer_test.go")}, "TestOuter/sub": nil} {
		if got, err := l.others(mutant{Package: "./", Test: test}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: without %v, %v, want %v", test, got, err, want)
		}
	}
}

// TestAModule tries mutants of a module of its own.
func TestAModule(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                "module example.org/sum\n\ngo 1.24\n",
		"sum/sum.go":            "package sum\n\nfunc Sum(a, b int) int { return a + b }\n",
		"sum/sum_test.go":       "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tt.Run(\"of two\", func(t *testing.T) {\n\t\tif Sum(1, 2) != 3 {\n\t\t\tt.Error(\"wrong\")\n\t\t}\n\t})\n}\n",
		patches + "/adds.patch": valid,
		patches + "/same.patch": strings.Replace(valid, "a - b", "b + a", 1),
		patches + "/none.patch": strings.Replace(valid, "a - b", "a - c", 1),
		patches + "/past.patch": strings.Replace(valid, "-func Sum(a, b", "-func Sum(b, a", 1),
	} {
		file := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	page, kept := filepath.Join(root, "page.md"), filepath.Join(root, "kept.json")
	for _, tt := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"--run", "adds", "--markdown", page}, 0, []string{"1 mutants: 1 caught.", "It adds.", "./sum TestSum/of two"}},
		{[]string{"--json", kept}, 1, []string{"4 mutants: 1 caught, 1 survived, 2 broken.", "undefined: c", "the patch does not apply"}},
		{[]string{"--json", kept, "--resume", "--run", "adds|none"}, 1, []string{"2/2", "2 mutants: 1 caught, 1 broken."}},
		{[]string{"--list"}, 0, []string{"adds", "past"}},
	} {
		var out bytes.Buffer
		err := run(context.Background(), root, tt.args, time.Now(), &out)
		if exitCode(err) != tt.code {
			t.Errorf("%v: exit code %d, want %d: %v", tt.args, exitCode(err), tt.code, err)
		}
		for _, want := range tt.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: it does not print %q:\n%s", tt.args, want, out.String())
			}
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(got), "| adds | It adds. | `sum` TestSum/of two | caught |") {
		t.Errorf("the page: %v\n%s", err, got)
	}
	if got, _ := os.ReadFile(filepath.Join(root, "sum/sum.go")); !strings.Contains(string(got), "a + b") {
		t.Errorf("the checkout was changed: %s", got)
	}
}
