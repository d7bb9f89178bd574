//go:build unix

package defender

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAReportNeedsFilesThatCanBeReadTwice(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "traces.csv")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := checkTwice("", []string{pipe}); err != nil {
		t.Errorf("without a report: %v", err)
	}
	if err := checkTwice("report.html", []string{pipe}); err == nil || !strings.Contains(err.Error(), "traces.csv is no regular file: write it to one first") {
		t.Errorf("with a report: %v", err)
	}
	if err := checkTwice("report.html", []string{filepath.Join(t.TempDir(), "none")}); err != nil {
		t.Errorf("what is not there is told where it is read: %v", err)
	}
}
