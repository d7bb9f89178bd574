package main

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/muster-dev/muster/console"
)

// TestFastClock: deadlines of a context may be told by the machine's clock or by the
// simulated one, which is hours ahead here.
func TestFastClock(t *testing.T) {
	t.Parallel()
	began := time.Now()
	world := began.Add(5 * time.Hour)
	c := fastClock{now: func() time.Time { return world.Add(10 * time.Since(began)) }, speed: 10}
	lasts := func(ctx context.Context) time.Duration {
		d, ok := ctx.Deadline()
		if !ok {
			t.Fatal("the context has no deadline")
		}
		return d.Sub(c.Now()).Round(time.Second)
	}
	around := func(got, want time.Duration) bool { return got > want-20*time.Second && got <= want }
	t.Run("keeps a parent's deadline of the machine", func(t *testing.T) {
		t.Parallel()
		machine, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx, cancel := c.WithDeadline(machine, c.Now().Add(time.Hour))
		defer cancel()
		if err := ctx.Err(); err != nil {
			t.Fatalf("it is over at once: %v", err)
		}
		if got := lasts(ctx); !around(got, 10*time.Minute) { // a minute of the machine
			t.Errorf("it lasts %v of simulated time", got)
		}
		sooner, cancel := c.WithDeadline(machine, c.Now().Add(2*time.Minute))
		defer cancel()
		if got := lasts(sooner); !around(got, 2*time.Minute) {
			t.Errorf("with a sooner one it lasts %v", got)
		}
	})
	t.Run("keeps a parent's simulated deadline", func(t *testing.T) {
		t.Parallel()
		outer, cancel := c.WithDeadline(t.Context(), c.Now().Add(5*time.Minute))
		defer cancel()
		between, cancel := context.WithCancel(outer)
		defer cancel()
		ctx, cancel := c.WithDeadline(between, c.Now().Add(time.Hour))
		defer cancel()
		if got := lasts(ctx); ctx.Err() != nil || !around(got, 5*time.Minute) {
			t.Errorf("it lasts %v, %v", got, ctx.Err())
		}
	})
	t.Run("keeps the machine's deadline of a context within a simulated one", func(t *testing.T) {
		t.Parallel()
		outer, cancel := c.WithDeadline(t.Context(), c.Now().Add(10*time.Hour))
		defer cancel()
		machine, cancel := context.WithTimeout(outer, time.Minute)
		defer cancel()
		ctx, cancel := c.WithDeadline(machine, c.Now().Add(time.Hour))
		defer cancel()
		if got := lasts(ctx); ctx.Err() != nil || !around(got, 10*time.Minute) {
			t.Errorf("it lasts %v, %v", got, ctx.Err())
		}
	})
}

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
