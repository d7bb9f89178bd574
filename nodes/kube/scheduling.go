package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// constraints finds out what the placement of pods depends on, while their pages pass by.
//
// Two things are known only when all pods have been seen: which labels some pod's affinity or spread looks at, and what is behind
// volume claims. Keeping whole pods until then would cost some 10 kB for each, so of a pod is kept what it says by itself, as a text
// that it shares with its kind, beside its labels and claims; of the pods that look at others one of each kind.
type constraints struct {
	texts   map[string]string // the one copy of each text
	looking []*corev1.Pod
	seen    map[string]bool // kinds among looking, by namespace and text
	pods    []constrained
	claims  bool // whether some pod has a claim
}

// constrained is what is kept of a pod.
type constrained struct {
	node      int // index in the view, ofPending or ofBuffer
	at        int // index among the node's or the pending pods, or among the buffers
	text      string
	namespace string
	name      string
	labels    map[string]string
	claims    []corev1.Volume
}

// Pods that are on no node.
const (
	ofPending = -1
	ofBuffer  = -2 // of a capacity buffer
)

func newConstraints() *constraints {
	return &constraints{texts: map[string]string{}, seen: map[string]bool{}}
}

// add takes a pod that has got its place in the view.
func (c *constraints) add(p *corev1.Pod, node, at int) {
	text := fit.Encode(p)
	if one, ok := c.texts[text]; ok {
		text = one
	} else {
		c.texts[text] = text
	}
	if kind := p.Namespace + " " + text; looksAtOthers(p) && !c.seen[kind] {
		c.seen[kind] = true
		looking := &corev1.Pod{}
		looking.Namespace, looking.Labels = p.Namespace, p.Labels
		looking.Spec.Affinity, looking.Spec.TopologySpreadConstraints = p.Spec.Affinity, p.Spec.TopologySpreadConstraints
		c.looking = append(c.looking, looking)
	}
	kept := constrained{node: node, at: at, text: text, namespace: p.Namespace, name: p.Name, labels: p.Labels}
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			kept.claims = append(kept.claims, v)
			c.claims = true
		}
	}
	c.pods = append(c.pods, kept)
}

func looksAtOthers(p *corev1.Pod) bool {
	a := p.Spec.Affinity
	return len(p.Spec.TopologySpreadConstraints) > 0 || a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil)
}

// write puts into every pod of the view what its placement depends on.
func (c *constraints) write(v *nodes.View, claims fit.Claims) error {
	type parts struct{ own, seen string }
	whole := map[parts]string{}
	e := fit.NewEncoder(slices.Values(c.looking), claims)
	for _, k := range c.pods {
		var rest corev1.Pod
		rest.Namespace, rest.Name, rest.Labels, rest.Spec.Volumes = k.namespace, k.name, k.labels, k.claims
		p := parts{own: k.text}
		if len(c.looking) > 0 || len(k.claims) > 0 {
			p.seen = e.Encode(&rest)
		}
		text, ok := whole[p]
		if !ok {
			var err error
			if text, err = together(p.own, p.seen); err != nil {
				return err
			}
			whole[p] = text
		}
		switch k.node {
		case ofPending:
			v.Pending[k.at].Scheduling = text
		case ofBuffer:
			v.Buffers[k.at].Pod.Scheduling = text
		default:
			v.Nodes[k.node].Pods[k.at].Scheduling = text
		}
	}
	return nil
}

// together returns the text of what a pod says by itself and what could only be seen among the others.
func together(own, seen string) (string, error) {
	if seen == "" {
		return own, nil
	}
	a, err := fit.Decode(own)
	if err != nil {
		return "", err
	}
	b, err := fit.Decode(seen)
	if err != nil {
		return "", err
	}
	a.Namespace, a.Labels, a.Volumes = b.Namespace, b.Labels, b.Volumes
	if a.Impossible == "" {
		a.Impossible = b.Impossible
	}
	return a.Text(), nil
}
