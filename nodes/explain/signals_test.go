package explain_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// byCluster is a cluster without Prometheus in which a pod has waited for 20 of 60 s.
func byCluster() nodes.Snapshot {
	s := drifted()
	s.Policy.Drift, s.Policy.MinWorkers = false, 0
	s.Policy.Signals, s.Policy.PendingUpFor, s.Policy.CooldownUp = nodes.SignalsKubernetes, time.Minute, 0
	s.Observation.Pending = []nodes.Pod{{Name: "shop/p", Requests: nodes.Resources{MilliCPU: 100_000}, Since: s.Now.Add(-20 * time.Second)}}
	s.Observation.Readings = nodes.ClusterReadings(s.Observation.Pending, s.Now)
	s.Record.PendingSinceEpoch = nodes.Num(s.Now.Unix())
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, s.Now)
	return s
}

// TestSignalsFromKubernetesAreExplained: where a number comes from, and what is waited for.
func TestSignalsFromKubernetesAreExplained(t *testing.T) {
	s := byCluster()
	text := written(t, s)
	for _, want := range []string{"NOOP because of PENDING_TOO_SHORT", "pending, by the Kubernetes API", "not read with SIGNALS=kubernetes", "SCALE_UP of 1 node (TRIGGERED)", "40s later"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, never := range []string{"average CPU", "Scale down:"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in\n%s", never, text)
		}
	}
	o := explain.Ahead(nodes.Decider{Policy: s.Policy}, s)
	if o.Then == nil || o.Then.At.Sub(s.Now) != 40*time.Second {
		t.Errorf("what comes is %+v, want a scale-up in 40s", o.Then)
	}

	s.Observation.Readings.Pending = nodes.Missing("listing pods: timed out")
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, s.Now)
	if text := written(t, s); !strings.Contains(text, "readable in the Kubernetes API: pending: listing pods: timed out") {
		t.Errorf("what is missing is not in\n%s", text)
	}
}

// TestSignalsInAReplay: a decision by Prometheus repeated by the Kubernetes API alone goes by what it saw of the pods, and no window was
// measured that could be the wrong one.
func TestSignalsInAReplay(t *testing.T) {
	s := byCluster()
	s.Policy.Signals = nodes.SignalsPrometheus
	s.Observation.Readings.CPU, s.Observation.Readings.CPUMin, s.Observation.Readings.CPUMax = nodes.Read(0.5), nodes.Read(0.5), nodes.Read(0.5)
	s.Observation.Readings.PendingMin, s.Observation.Readings.PendingMax = nodes.Read(0), nodes.Read(1)
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, s.Now)
	p := s.Policy
	p.Signals, p.PendingUpFor = nodes.SignalsKubernetes, 0
	var r explain.Replayed
	r.Replay(nodes.Decider{Policy: p}, "t1", s)
	if len(r.Differences) != 1 || r.Differences[0].Was.Action != nodes.Noop || r.Differences[0].Is.Action != nodes.ScaleUp || len(r.Windows) > 0 {
		t.Errorf("%+v", r)
	}
	var b bytes.Buffer
	if err := explain.WriteReplayed(&b, explain.Style{}, r); err != nil || !strings.Contains(b.String(), "up.pending-since 20s vs 0s passes") || strings.Contains(b.String(), "down.cooldown") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
