package realdata

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	top := t.TempDir()
	beside := filepath.Join(top, "shared", "data", "etch", "a.csv")
	named := filepath.Join(top, "elsewhere", "etch", "a.csv")
	checkout := filepath.Join(top, "checkout", "package")
	for _, dir := range []string{filepath.Dir(beside), filepath.Dir(named), checkout} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{beside, named} {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(checkout)
	for _, test := range []struct{ behaviour, name, dir, path, reason string }{
		{"a folder beside a parent is found", "etch/a.csv", "", beside, ""},
		{"the named folder comes first", "etch/a.csv", filepath.Join(top, "elsewhere"), named, ""},
		{"a file missing from the named folder is a reason", "etch/b.csv", filepath.Join(top, "elsewhere"), "", "MUSTER_DATA names"},
		{"a file found nowhere is a reason that names the variable", "etch/b.csv", "", "", "set MUSTER_DATA"},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			path, reason := find(test.name, test.dir)
			if path != test.path || (reason == "") != (test.reason == "") || !strings.Contains(reason, test.reason) {
				t.Errorf("find = %q, %q, want %q, %q", path, reason, test.path, test.reason)
			}
		})
	}
}
