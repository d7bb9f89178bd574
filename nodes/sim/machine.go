package sim

import (
	"time"

	"github.com/muster-dev/muster/nodes"
)

// instance is a machine in the cloud.
type instance struct {
	nodes.Instance
	visibleAt time.Time
	goneAt    time.Time // when it began to end; zero while it lives
	node      *node     // its Node object, while it exists
	everReady bool
	impaired  nodes.Impairment // by the cloud's status checks
}

func (i *instance) alive() bool { return i.Alive() }

// visible reports whether the cloud lists the instance, which it does for an hour after its end too.
func (i *instance) visible(now time.Time) bool {
	return !now.Before(i.visibleAt) && (i.goneAt.IsZero() || now.Sub(i.goneAt) < time.Hour)
}

// node is a Node object.
type node struct {
	nodes.Node
	used       nodes.Resources // by pods, when they were last placed
	instance   *instance
	readySince time.Time
	claims     []string
	byHand     bool          // a person cordoned it
	unbalanced bool          // load balancers send it no new connections
	closed     bool          // no pod tolerates its taints
	keeps      []nodes.Taint // that pods have to tolerate
	kube       nodeTraits
}

// mark marks the node as to be deleted, or takes the marks off.
func (n *node) mark(on bool) { n.ToBeDeleted, n.unbalanced = on, on }

// marked reports whether the node has both marks.
func (n *node) marked() bool { return n.ToBeDeleted && n.unbalanced }

// nodeTraits is what only the Kubernetes API shows of a node.
type nodeTraits struct {
	annotations map[string]string
	changes     int // of anything that the API shows of it
}

func (k *nodeTraits) set(key, value string) {
	if k.annotations == nil {
		k.annotations = map[string]string{}
	}
	k.annotations[key] = value
	k.changes++
}
