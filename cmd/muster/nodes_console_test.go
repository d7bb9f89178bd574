package main

import (
	"encoding/json"
	"regexp"
	"testing"
	"time"

	"github.com/muster-dev/muster/console"
)

func TestNodesConsole(t *testing.T) {
	t.Parallel()
	t.Run("shows a simulation that runs faster than the machine's clock", func(t *testing.T) {
		t.Parallel()
		daemon := begin(t, "nodes", "run", "--simulate", "--speed", "8", "--http", "127.0.0.1:0", "--log-format", "json", "--dir", t.TempDir())
		var address string
		waitFor(t, time.Minute, "it serves", func() bool {
			if m := regexp.MustCompile(`"msg":"running".*"http":"([^"]+)"`).FindStringSubmatch(daemon.out.String()); m != nil {
				address = m[1]
			}
			return address != ""
		}, &daemon.out)
		// A reading has five seconds by the machine's clock. Simulated time is further ahead than that within a second.
		var last string
		waitFor(t, time.Minute, "its console shows nodes as they are later than now", func() bool {
			last = get(t, "http://"+address+"/api/state")
			var s struct{ Nodes console.NodePlane }
			return json.Unmarshal([]byte(last), &s) == nil && s.Nodes.Error == "" && len(s.Nodes.Nodes) > 0 && time.Until(s.Nodes.At) > 20*time.Second
		}, &daemon.out)
	})
}
