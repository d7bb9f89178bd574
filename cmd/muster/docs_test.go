package main

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/cassandra"
	"github.com/muster-dev/muster/e2e"
	"github.com/muster-dev/muster/internal/command"
	defendercommand "github.com/muster-dev/muster/internal/command/defender"
	nodescommand "github.com/muster-dev/muster/internal/command/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/lambda"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitionprom"
	"github.com/muster-dev/muster/setting"
)

// What the documentation names has to be there: files and headings that it links to, commands and flags, settings and their defaults, metrics.
// What a page says about them no test can tell.

const repository = "../.."

// page is a file of the documentation.
type page struct {
	path  string // from the repository's root
	text  string
	prose string // without blocks of code
	code  []string
}

// pages reads every Markdown file of the repository.
func docPages(t *testing.T) []page {
	t.Helper()
	var out []page
	for _, path := range repositoryFiles(t, ".md") {
		p := page{path: path, text: readFile(t, path)}
		inBlock := false
		for _, l := range strings.SplitAfter(p.text, "\n") {
			switch {
			case strings.HasPrefix(strings.TrimSpace(l), "```"):
				inBlock = !inBlock
			case inBlock || strings.HasPrefix(l, "    ") && !strings.HasPrefix(strings.TrimSpace(l), "- "):
				p.code = append(p.code, strings.TrimSpace(l))
			default:
				p.prose += l
			}
		}
		p.code = append(p.code, codeSpans(p.prose)...)
		out = append(out, p)
	}
	if len(out) < 20 {
		t.Fatalf("found %d pages", len(out))
	}
	return out
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

func codeSpans(text string) []string {
	var out []string
	for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
		out = append(out, strings.ReplaceAll(m[1], "\n", " "))
	}
	return out
}

func repositoryFiles(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != repository:
			return fs.SkipDir
		case slices.Contains(suffixes, filepath.Ext(path)):
			out = append(out, strings.TrimPrefix(filepath.ToSlash(path), repository+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names by which GitHub links to a page's headings.
func anchors(p page) map[string]bool {
	out := map[string]bool{}
	for _, h := range heading.FindAllStringSubmatch(p.prose, -1) {
		text := link.ReplaceAllString(h[1], "]")
		out[strings.ReplaceAll(notSlug.ReplaceAllString(strings.ToLower(text), ""), " ", "-")] = true
	}
	return out
}

func TestEveryLinkInTheDocumentationLeadsSomewhere(t *testing.T) {
	t.Parallel()
	pages := docPages(t)
	byPath := map[string]page{}
	for _, p := range pages {
		byPath[p.path] = p
	}
	checked := 0
	for _, p := range pages {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			checked++
			target, anchor, _ := strings.Cut(m[1], "#")
			at := p.path
			if target != "" {
				at = filepath.ToSlash(filepath.Join(filepath.Dir(p.path), target))
			}
			if _, err := os.Stat(filepath.Join(repository, at)); err != nil {
				t.Errorf("%s links to %s, which is not there", p.path, m[1])
				continue
			}
			if to, ok := byPath[at]; anchor != "" && (!ok || !anchors(to)[anchor]) {
				t.Errorf("%s links to %s, and %s has no such heading", p.path, m[1], at)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d links were found", checked)
	}
}

var (
	// A command of ours at the beginning of a line or a code span; before it may be a prompt and what it gets from the environment.
	ourCommand = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:go run \./cmd/|/)?(muster|muster-defender|muster-nodes) ([a-z-].*)$`)
	// In messages and comments, where anything may follow, only what begins with one of the commands.
	namedCommand = regexp.MustCompile(`\bmuster ((?:up|nodes|partitions|defender|collect|broker)\b[^"\x60]*)`)
	commandEnds  = regexp.MustCompile(`[|;&()<>#]| -- |…|\.\.\.`)
	placeholder  = regexp.MustCompile(`[A-Z]{2,}|^[A-Z]$|[{}$|]`)
)

func oneOf[T ~string](list ...T) func(string) bool {
	return func(v string) bool { return slices.Contains(list, T(v)) }
}

// flagValues are the flags whose values the commands check when they run, which a
// test of the documentation can't have them do.
var flagValues = map[string]func(string) bool{
	"muster partitions events --kind":     oneOf(event.Kinds...),
	"muster partitions plan --strategy":   oneOf("sticky", "ring"),
	"muster partitions status --output":   oneOf("table", "json"),
	"muster partitions plan --output":     oneOf("table", "json"),
	"muster partitions events --output":   oneOf("table", "json"),
	"muster partitions override --output": oneOf("table", "json"),
	"muster up --scenario":                oneOf(e2e.Names()...),
	"muster up --case":                    func(v string) bool { return slices.Contains(caseWord.FindAllString(e2e.DescribeCases(), -1), v) },
}

var caseWord = regexp.MustCompile(`[a-z][a-z-]*`)

// wrongCommand says what is wrong with the words after muster: a command or flag that there is not, a value that the flag does not take.
// What is no flag, after a command that has no commands of its own, is anything.
func wrongCommand(cmd *cobra.Command, words []string) string {
	for len(words) > 0 {
		word := strings.TrimRight(words[0], ",.:'\"")
		words = words[1:]
		name, isFlag := strings.CutPrefix(word, "-")
		switch {
		case isFlag:
			name, value, has := strings.Cut(strings.TrimPrefix(name, "-"), "=")
			f := flagOf(cmd, name, strings.HasPrefix(word, "--"))
			if f == nil {
				return cmd.CommandPath() + " has no flag " + word
			}
			if !has && f.NoOptDefVal == "" && len(words) > 0 {
				value, has = strings.Trim(strings.TrimRight(words[0], ".,:"), "'\""), true
				words = words[1:]
			}
			if has && !placeholder.MatchString(value) {
				if takes := flagValues[cmd.CommandPath()+" --"+name]; takes != nil && !takes(value) {
					return cmd.CommandPath() + " " + word + " does not take " + value
				}
				if err := f.Value.Set(value); err != nil {
					return cmd.CommandPath() + " " + word + " does not take " + value + ": " + err.Error()
				}
			}
		case cmd.HasAvailableSubCommands():
			var next *cobra.Command
			for _, c := range cmd.Commands() {
				if c.Name() == word {
					next = c
				}
			}
			if next == nil {
				return cmd.CommandPath() + " has no command " + word
			}
			next.InitDefaultHelpFlag()
			cmd = next
		}
	}
	return ""
}

func flagOf(cmd *cobra.Command, name string, long bool) *pflag.Flag {
	if !long {
		return cmd.Flags().ShorthandLookup(name)
	}
	if f := cmd.Flags().Lookup(name); f != nil {
		return f
	}
	return cmd.InheritedFlags().Lookup(name)
}

// each returns a line once for every word in the place of alternatives: "a|b c" is "a c" and "b c".
func each(line string) []string {
	for _, word := range strings.Fields(line) {
		if strings.HasPrefix(word, "'") || !strings.Contains(word, "|") || strings.Trim(word, "|") != word {
			continue
		}
		var out []string
		for _, w := range strings.Split(word, "|") {
			out = append(out, each(strings.Replace(line, word, w, 1))...)
		}
		return out
	}
	return []string{line}
}

func TestEveryCommandInTheDocumentationExists(t *testing.T) {
	t.Parallel()
	checked := 0
	roots := map[string]*cobra.Command{ // one for all: what a flag was set to before does not matter
		"muster": newRoot(), "muster-defender": defendercommand.Binary(), "muster-nodes": nodescommand.Binary(),
	}
	for _, root := range roots {
		command.Complete(root, io.Discard)
		root.InitDefaultHelpFlag()
		root.InitDefaultVersionFlag()
	}
	check := func(where, binary, line string) {
		for _, l := range each(line) {
			if end := commandEnds.FindStringIndex(l); end != nil {
				l = l[:end[0]]
			}
			checked++
			if wrong := wrongCommand(roots[binary], strings.Fields(l)); wrong != "" {
				t.Errorf("%s: %q: %s", where, strings.TrimSpace(line), wrong)
			}
		}
	}
	for _, p := range docPages(t) {
		for _, line := range strings.Split(strings.ReplaceAll(strings.Join(p.code, "\n"), "\\\n", " "), "\n") {
			if m := ourCommand.FindStringSubmatch(line); m != nil {
				check(p.path, m[1], m[2])
			}
		}
	}
	// Messages, comments and alerts send people to commands, too.
	for _, path := range repositoryFiles(t, ".go", ".yaml") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, line := range strings.Split(strings.ReplaceAll(readFile(t, path), `\n`, "\n"), "\n") {
			if strings.Contains(line, "access.Connect(") { // the name of a connection
				continue
			}
			for _, m := range namedCommand.FindAllStringSubmatch(line, -1) {
				if !strings.HasPrefix(m[1], "up ") || strings.HasPrefix(m[1], "up --") { // "muster up with its scenarios" is prose
					check(path, "muster", m[1])
				}
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d commands were found", checked)
	}
}

// foreign are names in capitals that are not Muster's settings, with who reads them.
var foreign = map[string]string{
	"AWS_PROFILE":     "the AWS SDK",
	"INSTANCE_ID":     "readers of an example: a node's own",
	"SHIFT_KEY":       "an example of a webhook's key",
	"CAPABILITY_IAM":  "aws cloudformation",
	"CGO_ENABLED":     "go build",
	"GOOS":            "go build",
	"GOARCH":          "go build",
	"MUSTER_DATA":     "the tests",
	"PEERS_PYTHON":    "the tests",
	"GOWORK":          "the go command",
	"MUSTER_REQUIRE":  "the tests",
	"XDG_CACHE_HOME":  "where caches are",
	"XDG_STATE_HOME":  "where states are",
	"LOCAL_QUORUM":    "a consistency of Cassandra",
	"LOCAL_SERIAL":    "a consistency of Cassandra",
	"PAY_PER_REQUEST": "a billing mode of DynamoDB",
}

var (
	settingName = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b`)
	assigned    = regexp.MustCompile(`(?:^|[\s{,` + "`" + `])([A-Z][A-Z0-9_]{2,})=`)
	quotedName  = regexp.MustCompile(`"([A-Z][A-Z0-9_]+)"`)
	settingRow  = regexp.MustCompile(`(?m)^\| ` + "`?" + `([A-Z][A-Z0-9_]*)` + "`?" + ` \| ([^|]*) \|`)
)

func allSettings() map[string]setting.Info {
	out := map[string]setting.Info{}
	add := func(list []setting.Info) {
		for _, i := range list {
			out[i.Env] = i
		}
	}
	for _, g := range append(connect.Groups(), connect.Group{Name: "Workers", Settings: workers.Settings()}, nodescommand.DaemonSettings()) {
		add(g.Settings)
	}
	add(lambda.Settings())
	add(cassandra.Settings())
	for _, name := range settingName.FindAllString(access.Variables, -1) {
		add([]setting.Info{{Env: name}})
	}
	return out
}

func TestEverySettingInTheDocumentationExistsAndHasTheDefaultThatIsTold(t *testing.T) {
	t.Parallel()
	known := allSettings()
	// Reasons of decisions and phases of actions are words in capitals, too.
	words := map[string]bool{}
	for _, path := range []string{"nodes/decision.go", "nodes/record.go", "partition/machine.go", "partition/worker.go", "nodes/transition.go"} {
		for _, m := range quotedName.FindAllStringSubmatch(readFile(t, path), -1) {
			words[m[1]] = true
		}
	}
	used := map[string]bool{}
	for _, p := range docPages(t) {
		names := settingName.FindAllString(link.ReplaceAllString(p.prose, "]"), -1)
		for _, c := range p.code {
			names = append(names, settingName.FindAllString(c, -1)...)
			for _, m := range assigned.FindAllStringSubmatch(c, -1) {
				names = append(names, m[1])
			}
		}
		for _, name := range names {
			_, is := known[name]
			_, others := foreign[name]
			used[name] = true
			if !is && !others && !words[name] {
				t.Errorf("%s names %s, which is no setting", p.path, name)
			}
		}
		for _, m := range settingRow.FindAllStringSubmatch(p.prose, -1) {
			s, is := known[m[1]]
			told := strings.Trim(strings.TrimSpace(m[2]), "`")
			if is && s.Default != "" && told != "" && len(s.Default) < 60 && told != s.Default && setsDefaults(p.prose, m[0]) {
				t.Errorf("%s tells that the default of %s is %s; it is %s", p.path, m[1], told, s.Default)
			}
		}
	}
	for name := range foreign {
		if !used[name] {
			t.Errorf("no page names %s: take it out of the list of foreign names", name)
		}
	}
}

// setsDefaults reports whether the second column of the table that a row is in has defaults.
func setsDefaults(prose, row string) bool {
	before, _, _ := strings.Cut(prose, row)
	if at := strings.LastIndex(before, "\n\n"); at >= 0 {
		before = before[at:]
	}
	header, _, _ := strings.Cut(strings.TrimSpace(before), "\n")
	return strings.HasPrefix(header, "| setting | default |")
}

func TestEveryMetricInTheDocumentationIsExported(t *testing.T) {
	t.Parallel()
	exported := map[string]bool{}
	w, err := partition.New(new(nats.Conn), defender.Partition(8), partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	describe := regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, c := range append(defender.NewMetrics(nil).Collectors(), partitionprom.NewCollector(w, defender.WorkerMetrics(nil))) {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			exported[describe.FindStringSubmatch(d.String())[1]] = true
		}
	}
	// The others come into being with what they count, so their names are read where they are given.
	for path, prefix := range map[string]string{
		"defender/metrics.go": "defender_", "nodes/daemon/counters.go": "muster_nodes_", "nodes/daemon/gauges.go": "muster_nodes_",
	} {
		for _, m := range regexp.MustCompile(`"([a-z]+(?:_[a-z]+)*)"`).FindAllStringSubmatch(readFile(t, path), -1) {
			exported[prefix+m[1]] = true
		}
	}
	named := regexp.MustCompile(`\b(?:defender|muster_nodes)_[a-z_]+[a-z]\b`)
	checked := 0
	for _, p := range docPages(t) {
		for _, name := range named.FindAllString(p.text, -1) {
			checked++
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
			if !exported[name] && !exported[base] {
				t.Errorf("%s names the metric %s, which nobody exports", p.path, name)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d metrics were found", checked)
	}
}

func TestFilesAndEventsInTheDocumentationExist(t *testing.T) {
	t.Parallel()
	file := regexp.MustCompile(`^(?:\./)?((?:bench|broker|cmd|console|defender|deploy|docs|internal|lab|nodes|partition|scenario|setting)/[A-Za-z0-9_./-]+)$`)
	event := regexp.MustCompile(`\b(?:scaleUp|scaleDown|sweep|interruption|drain|lease)\.[a-z][A-Za-z]*\b`)
	var source strings.Builder
	for _, path := range repositoryFiles(t, ".go") {
		if strings.HasPrefix(path, "nodes/") && !strings.HasSuffix(path, "_test.go") {
			source.WriteString(readFile(t, path))
		}
	}
	known := source.String()
	files, events := 0, 0
	for _, p := range docPages(t) {
		for _, span := range codeSpans(p.prose) {
			m := file.FindStringSubmatch(span)
			if m == nil {
				continue
			}
			files++
			at := filepath.Join(repository, m[1])
			beside := filepath.Join(repository, filepath.Dir(p.path), m[1]) // pages of other modules name theirs
			if _, err := os.Stat(at); err != nil {
				if _, err := os.Stat(beside); err != nil {
					t.Errorf("%s names %s, which is not there", p.path, span)
				}
			}
		}
		for _, e := range event.FindAllString(p.text, -1) {
			if strings.HasSuffix(e, ".md") || strings.HasSuffix(e, ".go") { // a file
				continue
			}
			events++
			if !strings.Contains(known, `"`+e+`"`) {
				t.Errorf("%s names the event %s, which nobody writes", p.path, e)
			}
		}
	}
	if files < 30 || events < 10 {
		t.Errorf("only %d files and %d events were found", files, events)
	}
}
