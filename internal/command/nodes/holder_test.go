package nodes

import (
	"strings"
	"testing"
)

// TestDaemonHolder: a daemon has a name only if no other process can have it.
func TestDaemonHolder(t *testing.T) {
	for http, named := range map[string]bool{"127.0.0.1:9808": true, ":9808": true, "127.0.0.1:0": false, "off": false} {
		got := daemonSettings{HTTP: http}.holder()
		if named != strings.HasSuffix(got, "/"+http) || !named && got != "" {
			t.Errorf("HTTP %s: %q", http, got)
		}
	}
}
