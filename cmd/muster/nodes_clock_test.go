package main

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/muster-dev/muster/console"
)

var consoleAddress = regexp.MustCompile(`http://(127\.0\.0\.1:\d+)|"(?:address|http|addr)":"(127\.0\.0\.1:\d+)"`)

// TestSimulation/shows its nodes on the console at a speed: long after the simulated
// time has left the machine's behind.
func TestSimulation(t *testing.T) {
	t.Parallel()
	t.Run("shows its nodes on the console at speed 5", func(t *testing.T) {
		t.Parallel()
		daemon := begin(t, "nodes", "run", "--simulate", "--speed", "5", "--http", "127.0.0.1:0", "--log-format", "json", "--dir", filepath.Join(t.TempDir(), "simulated"))
		var at string
		waitFor(t, 90*time.Second, "it says where its console is", func() bool {
			m := consoleAddress.FindStringSubmatch(daemon.out.String())
			if m == nil {
				return false
			}
			at = m[1] + m[2]
			return true
		}, &daemon.out)
		// Any deadline of the console, seconds by the machine, is past in simulated time.
		time.Sleep(4 * time.Second)
		var last console.NodePlane
		waitFor(t, time.Minute, "the console shows nodes and no error", func() bool {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/api/state", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return false
			}
			defer func() { _ = res.Body.Close() }()
			var state struct{ Nodes console.NodePlane }
			if err := json.NewDecoder(res.Body).Decode(&state); err != nil {
				t.Fatal(err)
			}
			last = state.Nodes
			return last.Error == "" && len(last.Nodes) > 0
		}, shownAsJSON{&last})
		if err := daemon.stop(); err != nil {
			t.Errorf("it ended with %v; it said %s", err, daemon.out.String())
		}
	})
}

// shownAsJSON shows a value as it is when it is asked for.
type shownAsJSON struct{ v any }

func (j shownAsJSON) String() string {
	b, _ := json.Marshal(j.v)
	return string(b)
}
