package mkdocs

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/component"
)

// terms are what people search for.
var terms = []string{
	"consumer group", "partition", "rebalance", "handoff", "takeover", "failover", "fencing token", "lease", "split-brain", "poison message",
	"dead-letter queue", "backpressure", "head-of-line blocking", "at-least-once", "idempotent", "exactly-once effect", "quorum", "durability",
	"fsync", "drift", "consolidation", "disruption budget", "headroom",
}

// TestDocumentation builds the site as it is published: a warning fails the build, and the search knows the terms of the field.
func TestDocumentation(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	program := filepath.Join(component.MkDocs().Fetch(t), "python", "bin", "python")
	cmd := exec.CommandContext(t.Context(), program, "-m", "mkdocs", "build", "--strict", "-f", "mkdocs.yml", "-d", out)
	cmd.Env = append(os.Environ(), "NO_MKDOCS_2_WARNING=1", "NO_COLOR=1", "PYTHONDONTWRITEBYTECODE=1")
	text, err := cmd.CombinedOutput()
	if err != nil || strings.Contains(string(text), "WARNING") {
		t.Fatalf("mkdocs build: %v\n%s", err, text)
	}

	t.Run("its search finds the terms of the field", func(t *testing.T) {
		found := map[string]string{} // by term, the address of a page with it
		for _, d := range searched(t, out) {
			for _, term := range terms {
				if found[term] == "" && strings.Contains(strings.ToLower(d.Title+" "+d.Text), term) {
					found[term] = d.Location
				}
			}
		}
		for _, term := range terms {
			if found[term] == "" {
				t.Errorf("no page says %q", term)
			}
		}
	})

	t.Run("a link to a source file leads to the repository", func(t *testing.T) {
		page := read(t, filepath.Join(out, "docs", "partition", "index.html"))
		sources := regexp.MustCompile(`href="(https://github\.com/muster-dev/muster/blob/main/[^"]+)"`).FindAllStringSubmatch(page, -1)
		if len(sources) == 0 {
			t.Fatal("the page on partitioning links to no source file")
		}
		for _, m := range sources {
			path, _, _ := strings.Cut(strings.TrimPrefix(m[1], "https://github.com/muster-dev/muster/blob/main/"), "#")
			if _, err := os.Stat(filepath.Join("..", "..", path)); err != nil {
				t.Errorf("%s leads nowhere: %v", m[1], err)
			}
		}
	})

	t.Run("it loads nothing from elsewhere", func(t *testing.T) {
		page := read(t, filepath.Join(out, "index.html"))
		for _, m := range regexp.MustCompile(`<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]+)"`).FindAllStringSubmatch(page, -1) {
			t.Errorf("it loads %s", m[1])
		}
	})
}

// entry is what the search knows of a page or a part of one.
type entry struct{ Location, Title, Text string }

func searched(t *testing.T, out string) []entry {
	t.Helper()
	var index struct{ Docs []entry }
	if err := json.Unmarshal([]byte(read(t, filepath.Join(out, "search", "search_index.json"))), &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Docs) < 100 {
		t.Fatalf("the search knows %d parts of pages", len(index.Docs))
	}
	return index.Docs
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
