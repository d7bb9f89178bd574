package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/component"
)

var fenced = regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```")

// TestStartWithFaultDetection follows the page docs/start/fault-detection.md: its program writes the traces, and its command prints
// what the page shows.
func TestStartWithFaultDetection(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "start", "fault-detection.md"))
	if err != nil {
		t.Fatal(err)
	}
	var program, session string
	for _, m := range fenced.FindAllStringSubmatch(string(page), -1) {
		switch {
		case m[1] == "python":
			program = m[2]
		case strings.HasPrefix(m[2], "$ go run ./cmd/muster defender analyze"):
			session = m[2]
		}
	}
	if program == "" || session == "" {
		t.Fatal("the page has no program or no command")
	}

	python, err := exec.LookPath("python3")
	component.Need(t, err)
	traces, err := exec.CommandContext(t.Context(), python, "-c", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "traces.csv")
	if err := os.WriteFile(file, traces, 0o600); err != nil {
		t.Fatal(err)
	}

	command, shown, _ := strings.Cut(session, "\n")
	args := strings.Fields(strings.TrimPrefix(command, "$ go run ./cmd/muster "))
	for i, a := range args {
		switch a {
		case "traces.csv", "report.html":
			args[i] = filepath.Join(dir, a)
		}
	}
	code, out, errs := muster(args...)
	if code != 0 || out != shown {
		t.Errorf("exit code %d: %s\nprints\n%s\nand the page shows\n%s", code, errs, out, shown)
	}
	if report, err := os.ReadFile(filepath.Join(dir, "report.html")); err != nil || !strings.Contains(string(report), "wafer40") {
		t.Errorf("the report does not show wafer40, %v", err)
	}
}
