package explain_test

import (
	"fmt"
	"os"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// A scale-up waits for its cooldown; everything else about it holds.
func ExampleAhead() {
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	p := nodes.DefaultPolicy()
	o := nodes.Observation{FleetKnown: true, Readings: readings(0.9, 0)}
	for _, id := range []string{"i-1", "i-2"} {
		w := nodes.Worker{Instance: nodes.Instance{ID: id, State: nodes.StateRunning}, Node: &nodes.Node{NodeRef: nodes.NodeRef{Name: id}, Ready: true}}
		o.Fleet = append(o.Fleet, w)
	}
	r := nodes.NewRecord("")
	r.CPUHighSinceEpoch = now.Add(-5 * time.Minute).Unix()
	r.LastScaleEpoch = now.Add(-1 * time.Minute).Unix()
	s := nodes.Snapshot{Now: now, Policy: p, Observation: o, Record: r, Decision: nodes.Decide(p, o, r, now)}

	ahead := explain.Ahead(nodes.Decider{}, s)
	fmt.Println(s.Decision.Action, s.Decision.Reason)
	fmt.Println("then", ahead.Then.Decision.Action, "in", explain.Duration(ahead.Then.At.Sub(now)))
	fmt.Println(ahead.Paths[0].Needs[0].What)
	// Output:
	// NOOP COOLDOWN_UP
	// then SCALE_UP in 4m00s
	// the cooldown since the last action has to end, 4m00s more
}

func ExampleWriteEvents() {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	_ = explain.WriteEvents(os.Stdout, explain.Style{}, []nodes.Event{
		{At: at, Tick: "T1", Kind: "scaleUp.launched", ActionID: "a", Instance: "i-1", Message: "m5.large in eu-1a"},
		{At: at.Add(time.Second), Tick: "T1", Kind: "error", Message: "boot said password=hunter2"},
	})
	// Output:
	// TIME (UTC)           TICK  KIND              ACTION  INSTANCE  MESSAGE
	// 2026-11-21 10:00:00  T1    scaleUp.launched  a       i-1       m5.large in eu-1a
	// 2026-11-21 10:00:01  T1    error             -       -         boot said password=[redacted]
}
