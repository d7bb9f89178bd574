package linktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scenarioOnly is what package local doesn't link: it runs what production runs, and a
// scenario disturbs that from outside, through local.Hooks.
var scenarioOnly = []string{module + "/e2e/...", module + "/internal/powercut"}

// scenarioWords are parts of identifiers and strings by which a fault, or a record of what is
// processed, is known in code. Case is ignored.
var scenarioWords = []string{"scenario", "recorder", "chaos", "chaotic", "powercut", "cutpower", "ondisks", "poison", "victim", "forged", "rigged", "freeze"}

// TestLocal: a test hook doesn't slip back into package local.
func TestLocal(t *testing.T) {
	t.Parallel()
	t.Run("links no scenario", func(t *testing.T) {
		t.Parallel()
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath", module+"/local").Output()
		if err != nil {
			t.Fatalf("listing what package local links: %v", err)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p linked
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(scenarioOnly, func(pattern string) bool { return matches(pattern, p.ImportPath) }) {
				t.Errorf("package local links %s, which is for scenarios", p.ImportPath)
			}
		}
	})

	t.Run("has no test hook", func(t *testing.T) {
		t.Parallel()
		files, err := filepath.Glob("../../local/*.go")
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			read++
			for _, fault := range scenarioFaults(file, text) {
				t.Error(fault)
			}
		}
		if read == 0 {
			t.Error("package local has no files: this test shows nothing")
		}
	})

	t.Run("notices one", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{`var Chaotic bool`, `const holdHeader = "Scenario-Hold"`, `type Recorder struct{}`, `import "` + module + `/internal/powercut"`} {
			if len(scenarioFaults("x.go", []byte("package local\n"+text))) != 1 {
				t.Errorf("it doesn't notice %s", text)
			}
		}
		if faults := scenarioFaults("x.go", []byte("package local\n// A scenario may change this.\nvar port int")); len(faults) > 0 {
			t.Errorf("of a comment it says %q", faults)
		}
	})
}

// scenarioFaults returns the identifiers and strings of a file that are of scenarios.
func scenarioFaults(file string, text []byte) []string {
	fset := token.NewFileSet()
	var s scanner.Scanner
	s.Init(fset.AddFile(file, -1, len(text)), text, nil, 0)
	var out []string
	for {
		pos, kind, literal := s.Scan()
		if kind == token.EOF {
			return out
		}
		named := strings.ToLower(literal)
		isWord := kind == token.IDENT || kind == token.STRING
		if isWord && slices.ContainsFunc(scenarioWords, func(word string) bool { return strings.Contains(named, word) }) {
			out = append(out, fset.Position(pos).String()+": "+literal+" is a test hook: put it into e2e, behind local.Hooks")
		}
	}
}
