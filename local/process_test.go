package local

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLastWords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, said := filepath.Join(dir, "empty"), filepath.Join(dir, "said")
	for file, text := range map[string]string{empty: "\n", said: "first\nlast\n\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := lastWords(filepath.Join(dir, "none"), empty, said); got != "last" {
		t.Errorf("they are %q", got)
	}
	if got := lastWords(empty); got != "it said nothing" {
		t.Errorf("of an empty file they are %q", got)
	}
}
