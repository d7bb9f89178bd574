package nodes

import (
	"context"
	"time"
)

// reportTimeout bounds how long a tick shows what it decided. Nothing depends on that.
const reportTimeout = 5 * time.Second

// Reporter shows people what a tick decided, where they look for it: in the cluster itself. It is optional, and no decision depends on
// it. A crash before it costs nothing: the next tick reports again.
type Reporter interface {
	// Report shows what a tick saw and decided.
	Report(ctx context.Context, s Snapshot) error
	// TellNodes shows what becomes of nodes. It is called while actions begin and end.
	TellNodes(ctx context.Context, notices []NodeNotice) error
}

// PodRef names one incarnation of a pod.
type PodRef struct {
	Namespace, Name string
	UID             string
}

// PodNotice tells people why pods wait for a node and what will happen.
type PodNotice struct {
	Pods []PodRef
	// Cause tells notices about one pod apart: one with the cause of an earlier one is the same with a newer text.
	Cause   Reason
	Text    string
	Launch  bool // a node for the pods is launched, or on its way
	Forever bool // nothing changes until a person does something
}

// PoolStatus is how a pool stands.
type PoolStatus struct {
	Name    string `json:"-"`
	Nodes   int    `json:"nodes"`   // that count against its limits: workers, and launches in flight
	Ready   int    `json:"ready"`   // of Nodes: Ready and not cordoned
	Joining int    `json:"joining"` // of Nodes: launched and not joined yet
	Spot    int    `json:"spot"`    // of Nodes
	CPU     int64  `json:"cpu"`     // vCPUs of its workers
	Memory  string `json:"memory"`  // of its workers
	Limits  string `json:"limits"`
	Launch  string `json:"launch"` // "yes" if it may launch a node now, or why it may not
}

// report shows what a tick decided. That it can't be shown is logged and no failure of the tick.
func (t *tick) report(ctx context.Context) {
	if t.config.Reporter == nil || t.decided == nil {
		return
	}
	until, cancel := t.config.Clock.WithDeadline(ctx, t.now().Add(reportTimeout))
	defer cancel()
	if err := t.config.Reporter.Report(until, *t.decided); err != nil {
		t.log.report(ctx, "report.failed", "", "showing the decision in the cluster: %v", err)
	}
}
