package explain_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

func written(t *testing.T, s nodes.Snapshot) string {
	t.Helper()
	var b bytes.Buffer
	if err := explain.WriteSnapshot(&b, explain.Style{}, s, explain.Ahead(nodes.Decider{Policy: s.Policy}, s)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestExpiryIsExplained: that a worker is too old, and before that when it will be.
func TestExpiryIsExplained(t *testing.T) {
	of := func(age time.Duration) nodes.Snapshot {
		s := drifted()
		s.Policy.Drift, s.Policy.ExpireAfter = false, 24*time.Hour
		for i := range s.Observation.Fleet {
			s.Observation.Fleet[i].Instance.LaunchedAt = s.Now.Add(-age)
		}
		s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, s.Now)
		return s
	}
	text := written(t, of(25*time.Hour))
	for _, want := range []string{"SCALE_UP because of DRIFT", "older than EXPIRE_AFTER_SEC", "it replaces: i-1", "replace drifted or expired workers", "it was launched 25h0m0s ago"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	soon := of(23*time.Hour + 50*time.Minute)
	o := explain.Ahead(nodes.Decider{Policy: soon.Policy}, soon)
	if o.Then == nil || o.Then.Decision.Reason != nodes.ReasonDrift || o.Then.At.Sub(soon.Now) != 10*time.Minute {
		t.Errorf("ten minutes before a worker is too old, what comes is %+v", o.Then)
	}
}

// TestAnImpairedInstanceIsExplained: which check fails, since when, and when its worker is removed for it, or that none could be read.
func TestAnImpairedInstanceIsExplained(t *testing.T) {
	s := drifted()
	s.Policy.Drift = false
	s.Observation.Fleet[0].Instance.Impairment = nodes.Impairment{Check: "system", Since: s.Now.Add(-4 * time.Minute)}
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, s.Now)
	text := written(t, s)
	for _, want := range []string{"whose instances are impaired", s.Observation.Fleet[0].Instance.ID, s.Now.Add(-4 * time.Minute).UTC().Format(time.DateTime), "removed in 6m0s unless its system status check passes again"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}

	s.Observation.Fleet[0].Instance.Impairment, s.Observation.StatusesWhy = nodes.Impairment{}, "reading status checks: not permitted"
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, s.Now)
	if text := written(t, s); !strings.Contains(text, "status checks are not known: reading status checks: not permitted") {
		t.Errorf("nothing says that status checks are unknown:\n%s", text)
	}
}

// TestDiskPressureIsExplained: since when a disk is full, and when its worker is removed for it.
func TestDiskPressureIsExplained(t *testing.T) {
	s := drifted()
	s.Policy.Drift = false
	s.Observation.Fleet[0].Node.DiskFullSince = s.Now.Add(-10 * time.Minute)
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, s.Now)
	text := written(t, s)
	for _, want := range []string{"whose disks are full", s.Observation.Fleet[0].Instance.ID, s.Now.Add(-10 * time.Minute).UTC().Format(time.DateTime), "in 20m0s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}
