// Command words prints how long the documentation is and how long its sentences are.
//
//	go run ./internal/words
//
// It reads the pages that are written by hand: README.md, CONTRIBUTING.md and docs, without
// the reports that programs write to docs/results. A word has a letter or a digit. Blocks of
// code are not counted: they are commands, files, and what programs print. A code span is
// one word of a sentence. Cells of tables have no part in the mean, since many of
// them are no sentences, but a cell may not hold a longer sentence than the text.
//
// It exits with 1 if a page has a sentence that is too long or a mean that is too high,
// or if all of them together have too many words. The test of this package holds every
// file of the repository to the words that docs and code have agreed on.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What the documentation is held to.
const (
	maxWords = 30_000 // of all pages together
)

func main() {
	ok, err := run(".", os.Stdout)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}

// run writes a table of the pages below root, and reports whether all of them are within
// the limits.
func run(root string, out io.Writer) (ok bool, err error) {
	pages, err := readPages(root)
	if err != nil {
		return false, err
	}

	total := 0
	var problems []string
	_, _ = fmt.Fprintf(out, "%-34s %6s %10s %6s %8s\n", "page", "words", "sentences", "mean", "longest")
	for _, p := range pages {
		total += p.words
		problems = append(problems, p.problems()...)
		_, _ = fmt.Fprintf(out, "%-34s %6d %10d %6.1f %8d\n", p.path, p.words, len(p.sentences), p.mean(), p.longest())
	}
	_, _ = fmt.Fprintf(out, "%-34s %6d\n", "all", total)

	if total > maxWords {
		problems = append(problems, fmt.Sprintf("all pages have %d words, more than %d", total, maxWords))
	}
	for _, problem := range problems {
		_, _ = fmt.Fprintln(out, problem)
	}
	return len(problems) == 0, nil
}

// readPages reads the pages that are written by hand, in the order of their paths.
func readPages(root string) ([]page, error) {
	var pages []page
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			name, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			name = filepath.ToSlash(name)
			if strings.HasPrefix(name, "docs/results/") {
				continue // written by programs
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			pages = append(pages, newPage(name, string(text)))
		}
	}
	slices.SortFunc(pages, func(a, b page) int { return strings.Compare(a.path, b.path) })
	return pages, nil
}
