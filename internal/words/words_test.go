package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const repository = "../.."

// banned are words that the project doesn't use, each with what to write instead. They
// are looked for in every line of text, and in identifiers by their parts: HandOver and
// hand_over are "hand over".
var banned = []struct{ pattern, instead string }{
	{`anew`, "again, or re-create"},
	{`for ever`, "permanently, without end"},
	{`foretell\w*|foretold`, "preview, predict"},
	{`hand-overs?|handovers?|HandOvers?|handed over`, "handoff"},
	{`take-overs?`, "takeover"},
	{`cede[sd]?|ceding`, "hand off"},
	{`deputy|deputies`, "candidate"},
	{`deposed`, "former leader"},
	{`newcomers?`, "joining worker, new worker"},
	{`whoever`, "name the actor"},
	{`nobody's|is nobody`, "has no owner"},
	{`put aside|puts aside|putting aside`, "dead-letter"},
	{`by lot`, "at random"},
	{`mend|mends|mended|mending`, "fix, repair"},
	{`tells whether`, "reports whether"},
	{`in thought`, "dry run, what-if"},
	{`ghosts?`, "stale lease"},
	{`parked|parking|parks?`, "queued for retry"},
	{`so many`, "N"},
	{`seldom`, "rarely"},
	{`lethal`, "poison"},
	{`looks after|look after`, "runs, manages, handles"},
}

// bannedNames are parts of the names of types, functions and fields that are an old word
// for something of the project, although the word has other meanings in text.
var bannedNames = map[string]string{
	"yield":   "drain, hand off",
	"lot":     "retry queue",
	"pin":     "override",
	"pins":    "overrides",
	"member":  "process",
	"members": "processes",
	"ground":  "fixture",
	"site":    "environment",
}

// exempt are files that no list of words applies to.
var exempt = map[string]string{
	"internal/words/words_test.go":        "has the list",
	"docs/results/":                       "written by programs",
	"bench/results/":                      "written by programs",
	"partition/internal/record/testdata/": "stored records have the words of the wire format",
	"go.sum":                              "names of modules",
	"defender/strategy/schema.json":       "the schema's titles are generated",
}

// exceptions are uses of a word that stay, each with the reason.
var exceptions = []struct{ path, text, reason string }{
	{"defender/cassandra/store.go", "lot", "a wafer lot"},
	{"defender/completion.go", "Lot", "a wafer lot"},
	{"defender/gem/plan.go", "Lot", "a wafer lot"},
	{"defender/simulate/process.go", "lot", "a wafer lot"},
	{"defender/sqlite/row.go", "lot", "a wafer lot"},
	{"defender/dependence_test.go", "lot", "a wafer lot"},
	{"defender/uchart/basis.go", "lot", "a wafer lot"},
	{"defender/uchart/course.go", "lot", "a wafer lot"},
	{"defender/uchart/course.go", "inLot", "a wafer lot"},
	{"defender/uchart/course.go", "lotNumbers", "a wafer lot"},
	{"defender/uchart/course.go", "lotCount", "a wafer lot"},
	{"defender/uchart/multivariate.go", "JudgeLot", "a wafer lot"},
	{"defender/uchart/verdict.go", "Lot", "a wafer lot"},
	{"tchart/trace.go", "Lot", "a wafer lot"},
	{"bench/planning/franz.go", "members", "the members of a Kafka group"},
	{"deploy/drill/partitions_test.go", "stealPins", "the pins of NATS"},
	{"partition/config.go", "stalePinCheck", "the pins of NATS"},
	{"partition/deliveryeffect.go", "pin", "the pins of NATS"},
	{"partition/partitionprom/collector.go", "stalePins", "the pins of NATS"},
	{"partition/report/metrics.go", "StalePinsFreed", "the pins of NATS"},
	{"partition/servertest/leftover_test.go", "TestAStalePinIsTakenOff", "the pins of NATS"},
	{"partition/sim_delivery_test.go", "pinNumber", "the pins of NATS"},
	{"partition/sim_handoff_test.go", "keepPin", "the pins of NATS"},
	{"partition/sim_server_test.go", "pin", "the pins of NATS"},
	{"partition/sim_server_test.go", "watchPin", "the pins of NATS"},
	{"partition/slotpull.go", "pin", "the pins of NATS"},
	{"partition/slotquestion.go", "pin", "the pins of NATS"},
}

func TestWords(t *testing.T) {
	t.Parallel()
	for _, path := range repositoryFiles(t) {
		if skipped(path) {
			continue
		}
		text := readFile(t, path)
		for at, line := range strings.Split(text, "\n") {
			if !anyBanned.MatchString(line) && !anyBanned.MatchString(divided(line)) {
				continue
			}
			for _, use := range uses(line) {
				if !excepted(path, line) {
					t.Errorf("%s:%d: %q: write %s: %s", path, at+1, use.word, use.instead, excerpt(line, use.word))
				}
			}
		}
	}
}

func TestWordsInNames(t *testing.T) {
	t.Parallel()
	for _, path := range repositoryFiles(t) {
		if !strings.HasSuffix(path, ".go") || skipped(path) {
			continue
		}
		for _, name := range declared(t, path) {
			for _, part := range parts(name) {
				if instead, is := bannedNames[part]; is && !excepted(path, name) {
					t.Errorf("%s: the name %s: write %s", path, name, instead)
				}
			}
		}
	}
}

// TestExceptionsAreUsed keeps the list from outliving what it excuses.
func TestExceptionsAreUsed(t *testing.T) {
	t.Parallel()
	for _, e := range exceptions {
		if !strings.Contains(readFile(t, e.path), e.text) {
			t.Errorf("%s doesn't have %q: take the exception (%s) out of the list", e.path, e.text, e.reason)
		}
	}
}

// TestUses checks that the list finds words in text and identifiers and no parts of words.
func TestUses(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"the slot is parked, and whoever asks":           "parked whoever",
		"A Hand-over takes 3 ms":                         "Hand-over",
		"func HandOver() int":                            "HandOver",
		"type parkedQueue struct{}":                      "parked",
		"defender_handover_pause_seconds":                "handover",
		"var newcomersIdle bool":                         "newcomers",
		"func TestANewLeader(t *testing.T)":              "",
		"an amendment, a sparked lamp, proceed, recede":  "",
		"It recommends; the renewed lease is spreading.": "",
	} {
		var got []string
		for _, use := range uses(line) {
			got = append(got, use.word)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%q has %q, want %q", line, got, want)
		}
	}
}

func TestSentences(t *testing.T) {
	t.Parallel()
	p := newPage("a.md", "# A title is none\n\nOne sentence here. Another, with `some code` and e.g. this.\n\n"+
		"- A list item\n- [a link](to/some/where.md) too\n\n| a cell | two words |\n|---|---|\n\n```sh\nnot this\n```\nThe last.\n")
	want := []string{"One sentence here.", "Another, with code and e.g. this.", "A list item", "[a link] too", "The last."}
	if !slices.Equal(p.sentences, want) {
		t.Errorf("the sentences are %q, want %q", p.sentences, want)
	}
	if got := p.longest(); got != 6 {
		t.Errorf("the longest has %d words, want 6", got)
	}
}

type use struct{ word, instead string }

var bannedPatterns = func() []*regexp.Regexp {
	var out []*regexp.Regexp
	for _, b := range banned {
		out = append(out, regexp.MustCompile(`(?i)\b(?:`+b.pattern+`)\b`))
	}
	return out
}()

// anyBanned finds lines with at least one of them, which are few.
var anyBanned = func() *regexp.Regexp {
	var all []string
	for _, b := range banned {
		all = append(all, b.pattern)
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(all, "|") + `)\b`)
}()

// uses returns the banned words of a line.
func uses(line string) []use {
	var out []use
	for i, pattern := range bannedPatterns {
		for _, text := range []string{line, divided(line)} {
			word := pattern.FindString(text)
			if word != "" {
				out = append(out, use{word, banned[i].instead})
				break
			}
		}
	}
	return out
}

var (
	humps = regexp.MustCompile(`([a-z0-9]|\bA|[a-z]A)([A-Z][a-z]|[A-Z]+\b)`)
	words = regexp.MustCompile(`[A-Za-z0-9]+`)
)

// divided separates the parts of identifiers.
func divided(text string) string {
	return strings.ReplaceAll(humps.ReplaceAllString(text, "$1 $2"), "_", " ")
}

// parts returns the parts of an identifier in small letters.
func parts(name string) []string {
	return words.FindAllString(strings.ToLower(divided(name)), -1)
}

// declared returns the names of the types, functions, methods and fields of a file.
func declared(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			out = append(out, n.Name.Name)
		case *ast.TypeSpec:
			out = append(out, n.Name.Name)
		case *ast.StructType:
			for _, f := range n.Fields.List {
				for _, name := range f.Names {
					out = append(out, name.Name)
				}
			}
		}
		return true
	})
	return out
}

func excepted(path, line string) bool {
	for _, e := range exceptions {
		if e.path == path && strings.Contains(line, e.text) {
			return true
		}
	}
	return false
}

func skipped(path string) bool {
	for prefix := range exempt {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

var textFiles = []string{".go", ".md", ".yaml", ".yml", ".json", ".html", ".js", ".css", ".conf", ".sh", ".tf", ".txt", ".patch", ".cql", ".sql"}

// repositoryFiles returns the text files of the repository by their paths from its root.
func repositoryFiles(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(repository, func(path string, d os.DirEntry, err error) error {
		hidden := err == nil && strings.HasPrefix(d.Name(), ".") && d.Name() != ".ci" && path != repository
		switch {
		case err != nil:
			return err
		case d.IsDir() && (hidden || d.Name() == "node_modules"):
			return filepath.SkipDir
		case !d.IsDir() && (slices.Contains(textFiles, filepath.Ext(path)) || filepath.Base(filepath.Dir(path)) == ".ci"):
			out = append(out, strings.TrimPrefix(filepath.ToSlash(path), repository+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMerged: no file has the marks that a merge leaves where both sides changed a line.
func TestMerged(t *testing.T) {
	t.Parallel()
	for _, path := range repositoryFiles(t) {
		n := 0
		for line := range strings.Lines(readFile(t, path)) {
			n++
			if strings.HasPrefix(line, "<<<<<<< ") || strings.HasPrefix(line, ">>>>>>> ") {
				t.Errorf("%s:%d: %s", path, n, strings.TrimSpace(line))
			}
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// excerpt returns what is around a word.
func excerpt(line, word string) string {
	at := max(0, strings.Index(line, word)-50)
	return strings.TrimSpace(line[at:min(len(line), at+120)])
}
