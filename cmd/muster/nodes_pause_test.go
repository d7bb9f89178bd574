package main

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

func TestNodesPauseHoldsUntilResume(t *testing.T) {
	t.Parallel()
	j := newJournaled(t)
	j.simulator.SetLoad(0.9)
	j.tick()
	run := func(want string, args ...string) {
		t.Helper()
		code, out, errs := muster(append([]string{"nodes", args[0], "--dir", j.dir}, args[1:]...)...)
		if code != command.ExitOK || !strings.Contains(out, want) {
			t.Fatalf("%v: exit code %d, %q lacks %q: %s", args, code, out, want, errs)
		}
	}
	run("Scaling is paused.", "pause", "--by", "alice", "--reason", "exchanging a switch")
	run("by alice (exchanging a switch); that is kept", "pause", "--by", "bob", "--reason", "lunch")
	for range 8 {
		if d := j.tick().Decision; d == nil || d.Reason != nodes.ReasonPaused {
			t.Fatalf("while paused: %+v", d)
		}
	}
	run("by alice: exchanging a switch", "status")
	run("NOOP because of PAUSED", "explain")
	run("has to be ended (muster nodes resume)", "explain")
	if s := nodesJSON[explain.Status](t, "status", "--dir", j.dir); s.Paused == nil || s.Paused.By != "alice" || s.Paused.Reason != "exchanging a switch" {
		t.Errorf("status says %+v", s.Paused)
	}
	run("scaling.paused", "events")
	type result struct {
		Changed bool
		Ended   *explain.Pause
	}
	if r := nodesJSON[result](t, "resume", "--dir", j.dir); !r.Changed || r.Ended == nil || r.Ended.By != "alice" {
		t.Errorf("resume says %+v", r)
	}
	run("Scaling was not paused.", "resume")
	run("scaling.resumed", "events")
	if d := j.tick().Decision; d == nil || d.Action != nodes.ScaleUp {
		t.Errorf("after the pause: %+v", d)
	}
}

func TestAPauseWithoutAReasonIsWrongUsage(t *testing.T) {
	t.Parallel()
	code, _, errs := muster("nodes", "pause", "--by", "a\nb", "--dir", t.TempDir())
	if code != command.ExitUsage || !strings.Contains(errs, "the reason is empty") || !strings.Contains(errs, "one line of text") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
