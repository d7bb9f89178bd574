//go:build unix

package gem

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLedger_oneProcess: two hosts with one ledger would lose each other's lines.
func TestLedger_oneProcess(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "ledger")
	l := openLedger(t, name)
	if _, err := OpenLedger(name); err == nil || !strings.Contains(err.Error(), "another process has it: end that host") {
		t.Errorf("it is opened a second time: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	openLedger(t, name)
}
