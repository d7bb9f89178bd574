package main

import (
	"bytes"
	"errors"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/muster-dev/muster/internal/misuse"
)

// module is a module in memory, by the names of its files.
func module(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module example.org/m\n\ngo 1.26\n")}}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// read loads a module in memory.
func read(t *testing.T, files map[string]string) *tree {
	t.Helper()
	got, err := loadFS(module(files), subject{name: "fixture"}, ".")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func sameList(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestComplexity(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"a straight line":           {`f(); g()`, 1},
		"if, else if":               {`if a { } else if b { } else { }`, 3},
		"for and range":             {`for { }; for range x { }`, 3},
		"and, or":                   {`if a && (b || c) { }`, 4},
		"a switch with a default":   {`switch x { case 1, 2: case 3: default: }`, 3},
		"a type switch":             {`switch x.(type) { case int: case string: }`, 3},
		"a select with a default":   {`select { case <-x: default: }`, 2},
		"a literal within it":       {`go func() { if a { } }()`, 2},
		"a bit-wise and is no path": {`x = a & b`, 1},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"a.go": "package a\n\nfunc x() {\n" + c.body + "\n}\n"}
			tr := read(t, files)
			same(t, "complexity", measureFunctions(tr, tr.files).all[0].complexity, c.want)
		})
	}
}

func TestFunctions(t *testing.T) {
	text := "package a\n\ntype T[V any] struct{}\n\n// M has a comment.\nfunc (t *T[V]) M() {\n\tif true {\n\t}\n}\n\n"
	text += "func declared()\n\nfunc one() {}\n\nfunc three() {\n\n}\n"
	tr := read(t, map[string]string{"a.go": text})
	f := measureFunctions(tr, tr.files)

	same(t, "functions with a body", len(f.all), 3)
	same(t, "mean", f.mean(), 8.0/3)
	same(t, "longest", f.longest(), function{"a.T.M", 4, 2})
	same(t, "most complex", f.mostComplex().name, "a.T.M")
	same(t, "share of those over 2 lines", f.share(func(fn function) bool { return fn.lines > 2 }), 2.0/3)
}

func TestFunctions_percentile(t *testing.T) {
	var f functionFigures
	for i := range 200 {
		f.all = append(f.all, function{lines: i + 1})
	}
	same(t, "95th", f.percentile(95), 190)
	same(t, "99th", f.percentile(99), 198)
	same(t, "of nothing", functionFigures{}.percentile(99), 0)
}

func TestLines(t *testing.T) {
	tr := read(t, map[string]string{"a.go": strings.Join([]string{
		"// Copyright", "", "/* Package a is a", "", "   fixture. */", "package a", "",
		"var x = `", "", "// not a comment` // a comment beside code", "// a comment",
		"//" + strings.Repeat("é", 118), "//" + strings.Repeat("é", 119), "\t//" + strings.Repeat("é", 115),
	}, "\n") + "\n"})
	l := measureLines(tr, tr.files)

	same(t, "all", l.all, 14)
	same(t, "code", l.code, 4)
	same(t, "comments", l.comment, 6)
	same(t, "header", l.header, 1)
	same(t, "blank", l.blank, 3)
	same(t, "long", l.long, 2)
	same(t, "share of comments", percent(ratio(l.comment, l.written())), "60.0 %")
}

func TestDocs(t *testing.T) {
	tr := read(t, map[string]string{"a.go": `package a

// A is documented.
type A int

type (
	B int // is not
	// C is.
	C int
)

// M is documented, though not exported with its type.
func (a hidden) M() {}

func F() {}

type hidden int

const X = 1
`})
	same(t, "docs", measureDocs(tr.files), docFigures{exported: 5, documented: 3})
}

func TestTypes(t *testing.T) {
	tr := read(t, map[string]string{
		"a.go":      "package a\n\ntype T[V any] struct {\n\tx, y int\n\tother\n}\n\ntype other struct{ z int }\n",
		"b.go":      "package a\n\nfunc (t *T[V]) M() {}\n\nfunc (T[_]) N() {}\n",
		"c.go":      "package a\n\nfunc (t T[V]) O() {}\n\nfunc (o other) P() {}\n",
		"sub/d.go":  "package a\n\ntype T struct{}\n\nfunc (t T) M() {}\n",
		"e_test.go": "package a\n\nfunc (t T[V]) inTest() {}\n",
	})
	all := measureTypes(tr.measured(product))
	same(t, "types", len(all), 3)

	top := largest(all, 1, func(t *typeFigures) int { return t.methods })[0]
	same(t, "name", top.dir+" "+top.name, ". a.T")
	same(t, "methods", top.methods, 3)
	same(t, "fields", top.fields, 3)
	same(t, "files", len(top.files), 3)
}

func TestKinds(t *testing.T) {
	muster := profiles["github.com/muster-dev/muster"]
	for file, want := range map[string]kind{
		"partition/worker.go":           product,
		"partition/worker_test.go":      test,
		"e2e/audit/audit.go":            rig,
		"scenario/audit/audit.go":       rig,
		"e2etests/x.go":                 product,
		"nodes/sim/simulator.go":        rig,
		"nodes/storetest/run.go":        rig,
		"internal/measure/main.go":      rig,
		"internal/misuse/misuse.go":     product,
		"internal/misuse/error_test.go": test,
		"examples/plain/main.go":        rig,
		"_examples/main.go":             rig,
		"main.go":                       product,
	} {
		same(t, file, muster.kindOf(file), want)
	}
}

func TestKinds_the_table_names_directories(t *testing.T) {
	p := profiles["github.com/muster-dev/muster"]
	for _, dir := range slices.Concat(p.rig, p.product, p.parts, []string{p.main}) {
		if info, err := os.Stat(filepath.Join("../..", dir)); err != nil || !info.IsDir() {
			t.Errorf("profiles names %s, which is not a directory of the module: %v", dir, err)
		}
	}
}

func TestTree(t *testing.T) {
	files := map[string]string{
		"a.go":                "package a\n",
		"generated.go":        "// Code generated by x. DO NOT EDIT.\n\npackage a\n",
		"testdata/x.go":       "not even Go",
		"vendor/v/v.go":       "not even Go",
		"sub/sub.go":          "package sub\n",
		"nested/go.mod":       "module \"example.org/other\"\n",
		"nested/in/deep.go":   "package in\n",
		"nested/in/x_test.go": "package in\n",
	}
	all := make(map[string]string)
	for _, f := range read(t, files).measured(product, rig, test) {
		all[f.path] = f.importPath
	}
	want := map[string]string{
		"a.go":                "example.org/m",
		"sub/sub.go":          "example.org/m/sub",
		"nested/in/deep.go":   "example.org/other/in",
		"nested/in/x_test.go": "example.org/other/in",
	}
	if !maps.Equal(all, want) {
		t.Errorf("measured %v, want %v", all, want)
	}

	part, err := loadFS(module(files), subject{}, "sub")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "files of one directory", len(part.measured(product, rig, test)), 1)
}

// library is a package with names that others use or not.
var library = map[string]string{
	"lib/lib.go": `package lib

import "third.party/x"

type Used struct {
	Field ByField
	inner Hidden
}

func (Used) Method() (ByResult, error) { return ByResult{}, nil }

type ByField map[string][]ByElement

type ByElement struct{}

type ByResult struct{ x.Embedded }

type Hidden struct{}

func ByTest() {}

func ByOwnTest() {}

func ByExternalTest() {}

func Unnamed(Hidden) {}

func Shadowed() {}

const Constant = 1
`,
	"lib/own_test.go":      "package lib\n\nfunc x() { ByOwnTest() }\n",
	"lib/external_test.go": "package lib_test\n\nimport \"example.org/m/lib\"\n\nfunc x() { lib.ByExternalTest() }\n",
	"user/user.go": `package user

import l "example.org/m/lib"

var u l.Used

func f(x struct{ Shadowed int }) int { l := x; return l.Shadowed }

func g() { unknown(l.Constant) }
`,
	"user/user_test.go": "package user\n\nimport . \"example.org/m/lib\"\n\nfunc t() { ByTest() }\n",
}

func TestNames(t *testing.T) {
	c := check(read(t, library))
	n := measureNames(c.packages["example.org/m/lib"], c.uses)

	same(t, "exported", n.exported, 11)
	unused := []string{"ByElement", "ByField", "ByOwnTest", "ByResult", "Hidden", "Shadowed", "Unnamed"}
	sameList(t, "unused", n.unused, unused)
	sameList(t, "only by tests", n.tests, []string{"ByExternalTest", "ByTest"})
	sameList(t, "reached", n.reached, []string{"ByElement", "ByField", "ByResult"})
}

// crossed is a package whose files use each other in cycles.
var crossed = map[string]string{
	"a.go": "package p\n\ntype T struct{ b B }\n\nfunc (t T) Go() { t.b.field = 1; t.b.field++; C() }\n",
	"b.go": "package p\n\ntype B struct{ field int }\n\nfunc (b B) Call() { C() }\n",
	"c.go": "package p\n\nfunc C() { var x interface{ Go() }; x.Go() }\n\nfunc d() { get().Go() }\n",
	"d.go": "package p\n\nfunc alone() {}\n\nfunc get() T { panic(0) }\n",

	"generated.go": "// Code generated by x. DO NOT EDIT.\n\npackage p\n\nfunc generated() { C(); alone() }\n",
	"p_test.go":    "package p\n\nfunc inTest() { alone() }\n",
}

func TestArrows(t *testing.T) {
	a := check(read(t, crossed)).arrows["."]
	for from, want := range map[string][]string{
		"a.go": {"b.go", "c.go"}, "b.go": {"c.go"}, "c.go": {"a.go", "d.go"}, "d.go": {"a.go"},
	} {
		sameList(t, from, slices.Sorted(maps.Keys(a.to[from])), want)
	}
	sameList(t, "files", a.files, []string{"a.go", "b.go", "c.go", "d.go"})
	same(t, "arrows", a.count(), 6)
	// In the order c, d, a, b both arrows to c run back up; in a, b, c, d those to a.
	same(t, "back", a.back(), 2)
}

func TestArrows_back(t *testing.T) {
	for name, c := range map[string]struct {
		edges string
		want  int
	}{
		"nothing":                {"", 0},
		"a tree":                 {"ab ac bd be", 0},
		"against the alphabet":   {"dc cb ba da", 0},
		"a ring":                 {"ab bc cd da", 1},
		"each uses each":         {"ab ba ac ca bc cb", 3},
		"two rings":              {"ab ba cd dc bc", 2},
		"two rings that share c": {"ab bc ca cd de ec", 2},
	} {
		t.Run(name, func(t *testing.T) {
			same(t, "back", graph(strings.Fields(c.edges)...).back(), c.want)
		})
	}
}

// On small packages the heuristic is compared with every order there is.
func TestArrows_back_is_near_the_minimum(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	missed := 0
	const graphs = 200
	for range graphs {
		var edges []string
		for range 9 {
			if from, to := r.IntN(6), r.IntN(6); from != to {
				edges = append(edges, string(rune('a'+from))+string(rune('a'+to)))
			}
		}
		a := graph(edges...)
		got, again, least := a.back(), a.back(), minimum(a, nil, slices.Clone(a.files))
		if got < least || got > least+1 || got != again {
			t.Errorf("%v: %d arrows run back up, then %d; the minimum is %d", edges, got, again, least)
		}
		if got > least {
			missed++
		}
	}
	if missed > graphs/20 {
		t.Errorf("the minimum was missed in %d graphs of %d, want at most one of 20", missed, graphs)
	}
}

// graph has an arrow for each pair of letters.
func graph(edges ...string) arrows {
	a := arrows{to: make(map[string]map[string]bool)}
	for _, e := range edges {
		for _, f := range []string{e[:1], e[1:]} {
			if a.to[f] == nil {
				a.to[f] = make(map[string]bool)
			}
		}
		a.to[e[:1]][e[1:]] = true
	}
	a.files = slices.Sorted(maps.Keys(a.to))
	return a
}

// minimum tries every order that begins with some files.
func minimum(a arrows, order, left []string) int {
	if len(left) == 0 {
		return len(a.contradicting(order))
	}
	least := a.count()
	for i, f := range left {
		rest := slices.Delete(slices.Clone(left), i, i+1)
		least = min(least, minimum(a, append(slices.Clone(order), f), rest))
	}
	return least
}

func TestUsage(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"river", "=" + dir, "a=", "gone=" + dir + "/gone", "f=" + file, "b=" + dir, "b@1=" + dir, "c@1@then=" + dir,
	}
	_, err := parse(args)
	same(t, "exit code", misuse.ExitCode(err), 2)
	for _, want := range []string{
		`"river" is not a directory with a name`, `"=` + dir + `" is not`, `"a=" is not`,
		`"gone=` + dir + `/gone": looking for the directory`, `f=` + file + `": ` + file + ` is a file`,
		`"b@1=` + dir + `": the name "b" is given twice`,
		`"c@1@then=` + dir + `": "then" is not a date`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}

	_, err = parse([]string{"--table"})
	same(t, "exit code of an unknown flag", misuse.ExitCode(err), 2)
	same(t, "exit code of another error", misuse.ExitCode(errors.New("disk full")), 1)
	same(t, "exit code of none", misuse.ExitCode(nil), 0)
}

func TestUsage_a_directory_without_code(t *testing.T) {
	empty, broken, loose := t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(empty, "go.mod"):  "module m\n",
		filepath.Join(broken, "go.mod"): "module m\n",
		filepath.Join(broken, "x.go"):   "package",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	_, err := loadAll([]subject{
		{name: "empty", dir: empty}, {name: "broken", commit: "1a2b", dir: broken}, {name: "loose", dir: loose},
	})
	same(t, "exit code", misuse.ExitCode(err), 2)
	for _, want := range []string{
		"empty=" + empty + ": there are no Go files",
		"broken@1a2b=" + broken + ": parsing the code: x.go:1:8",
		"loose=" + loose + ": looking for the module: no go.mod in " + loose + " or above: give a directory of a Go module",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %s: %v", want, err)
		}
	}
	var usage *misuse.Error
	same(t, "is about the arguments", errors.As(err, &usage), true)
}

func TestOptions_command(t *testing.T) {
	dir := t.TempDir()
	o, err := parse([]string{"--markdown", "page.md", "etcd raft@cdfbeed@2026-08-20=" + dir, "river=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	want := "go run ./internal/measure --markdown page.md 'etcd raft@cdfbeed@2026-08-20=DIR' river=DIR"
	same(t, "command", o.command(), want)
}

func TestPage(t *testing.T) {
	tr := read(t, library)
	tr.commit, tr.date = "1a2b3c4", "2026-11-22"
	tr.profile.parts = []string{"lib", "gone"}
	p := page{date: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), command: "go run ./internal/measure"}
	p.add(tr, check(tr))
	var out bytes.Buffer
	p.write(&out)

	for _, want := range []string{
		"Written on 2026-11-23 by `go run ./internal/measure`.",
		"|  | fixture `1a2b3c4` of 2026-11-22 |\n| --- | ---: |\n",
		"|  | lib, fixture `1a2b3c4` of 2026-11-22 |\n",
		"| **Lines** |  |\n| product | 39 |\n| rig | 0 |\n| tests | 13 |\n",
		"| the package | `lib` |\n",
		"| 1 | `lib.Used`: 1 method, 2 fields, 1 file |\n",
		"| named by no other package | 7 |\n",
		"## How it is counted\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, out.String())
		}
	}
}

func TestNotes_name_a_file_that_exists(t *testing.T) {
	if !strings.Contains(notes, "(../../internal/measure/rig.go)") {
		t.Error("the notes don't name the table of the rig's directories")
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "rig.go", nil, parser.PackageClauseOnly); err != nil {
		t.Error(err)
	}
}

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		same(t, "thousands", thousands(n), want)
	}
}
