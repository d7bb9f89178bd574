package nodes

import (
	"strings"
	"testing"
	"time"
)

// roomSizer packs by requests alone onto the Ready workers, and asks for one node of two cores for every two cores that are left.
type roomSizer struct{}

func (roomSizer) Placed(q Question) (ready, coming []int) {
	room := map[string]int64{}
	for _, w := range q.Observation.Fleet {
		if !w.Available() {
			continue
		}
		room[w.Node.Name] = w.Node.Allocatable.MilliCPU
		for _, p := range w.Node.Pods {
			room[w.Node.Name] -= p.Requests.MilliCPU * int64(p.N())
		}
	}
	ready, coming = make([]int, len(q.Observation.Pending)), make([]int, len(q.Observation.Pending))
	for i, p := range q.Observation.Pending {
		for range p.N() {
			for _, w := range q.Observation.Fleet {
				if p.NeverFit == "" && room[w.Node.Name] >= p.Requests.MilliCPU {
					room[w.Node.Name] -= p.Requests.MilliCPU
					ready[i]++
					break
				}
			}
		}
	}
	return ready, coming
}

func (s roomSizer) Plan(q Question) Plan {
	ready, _ := s.Placed(q)
	var left int64
	for i, p := range q.Observation.Pending {
		if p.NeverFit == "" {
			left += int64(p.N()-ready[i]) * p.Requests.MilliCPU
		}
	}
	return Plan{Nodes: make([]Want, (left+1999)/2000), Why: "by cores"}
}

// reserved has four workers of four cores, of which a pod takes three, without Prometheus; and a buffer of pods of one core.
func reserved(replicas int) *situation {
	s := byCluster()
	for i := range s.o.Fleet {
		s.o.Fleet[i].Node.Pods = []Pod{{Name: "ns/p", Requests: Resources{MilliCPU: 3000}}}
	}
	s.o.Buffers = []Buffer{{Name: "ns/web", Replicas: replicas, Pod: Pod{Requests: Resources{MilliCPU: 1000}}}}
	s.p.Consolidation = ConsolidationRemove
	return s
}

func (s *situation) waits(pods ...Pod) {
	s.o.Pending = pods
	s.o.Readings = ClusterReadings(pods, s.now)
	s.r.IdleSinceEpoch = Num(0)
}

func TestHeadroom(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int
		change   func(*situation)
		action   Action
		reason   Reason
		nodes    int
	}{
		"it has room":               {4, none, Noop, ReasonSteady, 0},
		"it lacks room":             {7, none, ScaleUp, ReasonHeadroom, 2},
		"within MAX_BATCH_UP":       {30, func(s *situation) { s.p.MaxBatchUp = 2 }, ScaleUp, ReasonHeadroom, 2},
		"within MAX_WORKERS":        {30, func(s *situation) { s.p.MaxWorkers = 5 }, ScaleUp, ReasonHeadroom, 1},
		"not beyond MAX_WORKERS":    {30, func(s *situation) { s.p.MaxWorkers = 4 }, Noop, ReasonMaxWorkers, 0},
		"not within the cooldown":   {7, func(s *situation) { s.p.CooldownUp, s.r.LastScaleEpoch = time.Minute, s.ago(59) }, Noop, ReasonCooldownUp, 0},
		"not within a back-off":     {7, func(s *situation) { s.r.BackoffUntilEpoch = s.ago(-60) }, Noop, ReasonBackoff, 0},
		"not while paused":          {7, pause, Noop, ReasonPaused, 0},
		"not of an unknown fleet":   {7, func(s *situation) { s.o.FleetKnown = false }, Noop, ReasonFleetUnknown, 0},
		"not with another signal":   {7, func(s *situation) { s.p.Signals = SignalsPrometheus; s.metrics(0.5, 0) }, Noop, ReasonSteady, 0},
		"not if it is ignored":      {7, func(s *situation) { s.o.Buffers[0].Ignored = "no template" }, Noop, ReasonSteady, 0},
		"not if it fits no node":    {7, func(s *situation) { s.o.Buffers[0].Pod.NeverFit = "too big" }, Noop, ReasonSteady, 0},
		"a pod that waits is first": {7, func(s *situation) { s.waits(Pod{Name: "ns/q", Requests: Resources{MilliCPU: 2000}}) }, ScaleUp, ReasonTriggered, 1},
		"a pod that has to wait for its node": {7, func(s *situation) {
			s.p.PendingUpFor = time.Minute
			s.waits(Pod{Name: "ns/q", Requests: Resources{MilliCPU: 2000}, Since: s.now})
		}, Noop, ReasonPendingTooShort, 0},
		"a pod that has room takes it from the buffer": {4, func(s *situation) { s.waits(Pod{Name: "ns/q", Requests: Resources{MilliCPU: 1000}}) }, ScaleUp, ReasonHeadroom, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := reserved(c.replicas)
			c.change(s)
			d := Decider{Policy: s.p, Sizer: roomSizer{}}.Decide(s.o, s.r, s.now)
			if d.Action != c.action || d.Reason != c.reason || d.Nodes != c.nodes {
				t.Errorf("%s of %d because of %s %s, want %s of %d because of %s\n%+v", d.Action, d.Nodes, d.Reason, d.Detail, c.action, c.nodes, c.reason, d.Gates)
			}
			if d.Reason == ReasonHeadroom && !strings.Contains(d.Detail, "capacity buffer ns/web") {
				t.Errorf("the detail does not name the buffer: %s", d.Detail)
			}
		})
	}
}

func TestConsolidationKeepsHeadroom(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int
		change   func(*situation)
		action   Action
	}{
		"without a buffer a worker goes": {0, none, ScaleDown},
		"what is left has room for it":   {8, none, ScaleDown},
		"what is left has none":          {11, none, Noop},
		"what has no room now holds nothing up": {2, func(s *situation) {
			s.p.MaxWorkers = 4
			s.o.Buffers = append(s.o.Buffers, Buffer{Name: "ns/big", Replicas: 3, Pod: Pod{Requests: Resources{MilliCPU: 5000}}})
		}, ScaleDown},
		"nor does a buffer that is ignored":           {11, func(s *situation) { s.o.Buffers[0].Ignored = "no template" }, ScaleDown},
		"none goes while buffers can't be read":       {0, func(s *situation) { s.o.BuffersWhy = "listing capacity buffers: timed out" }, Noop},
		"a pod of which no node would run holds none": {11, func(s *situation) { s.o.Buffers[0].Pod.NeverFit = "too big" }, ScaleDown},
	} {
		t.Run(name, func(t *testing.T) {
			s := reserved(c.replicas)
			for i := range s.o.Fleet {
				s.o.Fleet[i].Node.Pods = []Pod{{Name: "ns/p", Requests: Resources{MilliCPU: 1000}}}
			}
			c.change(s)
			d := Decider{Policy: s.p, Sizer: roomSizer{}}.Decide(s.o, s.r, s.now)
			if d.Action != c.action {
				t.Errorf("%s because of %s %s, want %s\n%+v", d.Action, d.Reason, d.Detail, c.action, d.Gates)
			}
		})
	}
}
