package nodes

import (
	"context"
	"fmt"
	"time"
)

// noticeTimeout bounds how long a notice may hold up what it is about. A Spot warning leaves no more.
const noticeTimeout = 2 * time.Second

// NodeNoticeKind is what a notice says of a node.
type NodeNoticeKind string

// The kinds.
const (
	NodeDrains      NodeNoticeKind = "drains"      // it is drained and then terminated
	NodeInterrupted NodeNoticeKind = "interrupted" // it is drained, and the cloud takes it away
	NodeReplaced    NodeNoticeKind = "replaced"    // a node that replaces it is launched first
	NodeKept        NodeNoticeKind = "kept"        // its drain failed: it stays
	NodeSpared      NodeNoticeKind = "spared"      // its drain was cancelled: it need not go any more
	NodeBlocked     NodeNoticeKind = "blocked"     // something on it keeps it from being drained
)

// NodeNotice tells people what becomes of a node and why.
type NodeNotice struct {
	Node NodeRef
	Kind NodeNoticeKind
	// Cause tells notices of one kind about one node apart: it names the action or the decision. Each is told once. NodeBlocked has
	// none, and is told as long as it is true, with its newest text.
	Cause string
	Text  string
}

// nodeTeller tells people what a run does to nodes, when it begins: a tick that drains lasts minutes, and afterwards the node is gone.
// Nothing depends on it. After a failure the run tells nothing more, so that it is held up once.
//
// A crash between a decision and its notice loses the notice's reason, but not the notice: whatever continues the drain tells it again,
// with what the record says. Where the first was told, the second is the same notice and is not written.
type nodeTeller struct {
	reporter Reporter
	clock    Clock
	log      *runLog
	failed   bool
}

// tell shows a notice; the text's arguments follow it.
func (t *nodeTeller) tell(ctx context.Context, node NodeRef, kind NodeNoticeKind, cause, text string, args ...any) {
	if t.reporter == nil || t.failed || node.Name == "" {
		return
	}
	until, cancel := t.clock.WithDeadline(ctx, t.clock.Now().Add(noticeTimeout))
	defer cancel()
	err := t.reporter.TellNodes(until, []NodeNotice{{Node: node, Kind: kind, Cause: cause, Text: fmt.Sprintf(text, args...)}})
	if err != nil {
		t.failed = true
		t.log.report(ctx, "report.failed", "", "telling what becomes of node %s: %v", node.Name, err)
	}
}

// cause names the drain that a removal began.
func (m Removal) cause() string {
	if m.ActionID == "" {
		return fmt.Sprintf("%s/%d", m.claim(), m.DrainedSince)
	}
	return m.ActionID
}

// cause names the interruption among those of its instance.
func (i Interruption) cause() string {
	return fmt.Sprintf("%s/%s/%d", i.claim(), i.Kind, i.OpenedEpoch)
}
