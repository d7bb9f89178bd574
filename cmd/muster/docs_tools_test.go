package main

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// toolCommand is a line that runs another program on files of the repository.
var toolCommand = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S+ )*((?:go (?:-C \S+ )?(?:run|test|build|doc)|kubectl (?:apply|delete)|helm install|\.ci/[a-z]+)\b.*)$`)

// TestDocumentationTools: packages, tests, benchmarks and flags that the documentation gives to the go command are there, and so are
// the manifests and charts that it installs. Muster's own commands are TestEveryCommandInTheDocumentationExists'.
func TestDocumentationTools(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, p := range docPages(t) {
		for _, line := range strings.Split(strings.ReplaceAll(strings.Join(p.code, "\n"), "\\\n", " "), "\n") {
			m := toolCommand.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			command, _, _ := strings.Cut(m[1], " # ")
			command, _, _ = strings.Cut(command, " && ")
			checked++
			for _, wrong := range wrongTool(t, p.path, strings.Fields(command)) {
				t.Errorf("%s: %q: %s", p.path, line, wrong)
			}
		}
	}
	if checked < 60 {
		t.Errorf("only %d commands were found", checked)
	}
}

// wrongTool returns what a command names that is not there.
func wrongTool(t *testing.T, page string, words []string) []string {
	t.Helper()
	switch {
	case words[0] == "go" && words[1] == "-C":
		return wrongGo(t, words[2], words[3], words[4:])
	case words[0] == "go":
		// Pages of other modules name what is in their own directory.
		if wrong := wrongGo(t, ".", words[1], words[2:]); len(wrong) == 0 {
			return nil
		}
		return wrongGo(t, path.Dir(page), words[1], words[2:])
	case words[0] == "helm":
		return absent("deploy/charts/" + words[3] + "/Chart.yaml")
	case words[0] == "kubectl":
		at := slices.IndexFunc(words, func(w string) bool { return w == "-k" || w == "-f" })
		if at < 0 || words[at+1] == "-" {
			return nil
		}
		if words[at] == "-k" {
			return absent(words[at+1] + "/kustomization.yaml")
		}
		return absent(words[at+1])
	}
	return absent(words[0])
}

func absent(file string) []string {
	if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
		return []string{file + " is not there"}
	}
	return nil
}

// wrongGo checks the packages that the go command is given in a directory, and what is asked of them.
func wrongGo(t *testing.T, dir, verb string, words []string) []string {
	t.Helper()
	var wrong []string
	var source strings.Builder
	at := -1
	for i, w := range words {
		pattern := i > 0 && (words[i-1] == "-run" || words[i-1] == "-bench")
		if pattern || w != "." && !strings.HasPrefix(w, "./") {
			continue
		}
		if at < 0 {
			at = i
		}
		where, below := strings.CutSuffix(path.Join(dir, w), "/...")
		found := goFiles(where, below)
		if found == "" {
			wrong = append(wrong, w+" has no Go files")
		}
		source.WriteString(found)
	}
	own := at >= 0 && strings.HasPrefix(words[at], "./cmd/muster") // its flags are another test's
	if at < 0 || own || len(wrong) > 0 {
		return wrong
	}
	for i, w := range words {
		name := strings.TrimLeft(w, "-")
		name, _, _ = strings.Cut(name, "=")
		switch {
		case verb == "test" && (w == "-run" || w == "-bench"):
			wrong = append(wrong, unmatched(source.String(), w, words[i+1])...)
		case !strings.HasPrefix(w, "-"), verb == "run" && i < at, verb == "build", verb == "test" && !strings.Contains(name, "."):
			// no flag, or one of the go command's own
		case !strings.Contains(source.String(), `"`+name+`"`):
			wrong = append(wrong, "there is no flag "+w)
		}
	}
	return wrong
}

// unmatched returns an error if a pattern is of no test or benchmark. One that is meant to match nothing says so by its x.
func unmatched(source, flag, pattern string) []string {
	pattern, _, _ = strings.Cut(strings.Trim(pattern, `'"`), "/")
	kind := "Test"
	if flag == "-bench" {
		kind = "Benchmark"
	}
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return []string{err.Error()}
	}
	for _, f := range regexp.MustCompile(`(?m)^func (`+kind+`\w*)\(`).FindAllStringSubmatch(source, -1) {
		if wanted.MatchString(f[1]) {
			return nil
		}
	}
	if pattern == "xxx" {
		return nil
	}
	return []string{"nothing there matches " + flag + " " + pattern}
}

// goFiles returns the source of a directory, or of all below it, with its tests.
func goFiles(dir string, below bool) string {
	var b strings.Builder
	root := filepath.Join(repository, dir)
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error { // what can't be read has no files
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && !below {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			content, err := os.ReadFile(path)
			b.Write(content)
			return err
		}
		return nil
	})
	return b.String()
}
