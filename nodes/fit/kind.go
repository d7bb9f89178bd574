package fit

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/muster-dev/muster/nodes"
)

// kind is what pods of one constraints' text have in common, made ready for questions.
type kind struct {
	Constraints
	problem string // why the constraints can't be judged, or why they can't be met by any node; "" if they can

	anywhere bool // no selector, affinity or volume narrows the nodes
	affinity nodeaffinity.RequiredNodeAffinity
	volumes  []*nodeaffinity.NodeSelector

	spread   []*spreadRule
	with     []*rule // affinity: pods that it needs in its domain
	without  []*rule // anti-affinity: pods that it can't bear in its domain
	selected []*rule // rules that select pods of this kind, of whatever pods

	admitted []uint64 // by offering, the zones in which it can be had and admits this kind
}

// free reports whether nothing but requests, selectors, taints and extended resources decides on pods of this kind, and no other pod
// looks at them.
func (k *kind) free() bool {
	return len(k.spread) == 0 && len(k.with) == 0 && len(k.without) == 0 && len(k.selected) == 0 && len(k.HostPorts) == 0
}

// spreadRule is a spread constraint of a kind.
type spreadRule struct {
	*rule
	Spread
	domains []string // that count, found so far
	known   map[string]bool
	looked  int    // bins whose domain has been looked at
	least   int    // fewest selected pods of a domain, when last counted
	witness string // a domain that had so few
}

// rule selects pods, and counts them by domain of a node label.
type rule struct {
	key      string
	selector labels.Selector
	all      bool // of all namespaces
	spaces   []string
	count    map[string]int // selected pods by domain
	total    int
	holders  map[string]int // pods that can't bear a selected one in their domain
	forbids  bool           // somebody has it as anti-affinity
}

func (r *rule) selects(c Constraints) bool {
	return c.Namespace != "" && (r.all || slices.Contains(r.spaces, c.Namespace)) && r.selector.Matches(labels.Set(c.Labels))
}

// kinds compiles texts and keeps the rules that the kinds share.
type kinds struct {
	byText map[string]*kind
	all    []*kind
	rules  map[string]*rule
}

func newKinds() *kinds { return &kinds{byText: map[string]*kind{}, rules: map[string]*rule{}} }

// of returns the kind of a text.
func (ks *kinds) of(text string) *kind {
	if k := ks.byText[text]; k != nil {
		return k
	}
	k := ks.compile(text)
	ks.byText[text] = k
	ks.all = append(ks.all, k)
	return k
}

func (ks *kinds) compile(text string) *kind {
	c, err := Decode(text)
	k := &kind{Constraints: c, problem: c.Impossible}
	if err != nil {
		k.problem = err.Error()
		return k
	}
	spec := corev1.PodSpec{NodeSelector: c.NodeSelector}
	if c.NodeAffinity != nil {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: c.NodeAffinity}}
	}
	k.anywhere = len(c.NodeSelector) == 0 && c.NodeAffinity == nil && len(c.Volumes) == 0
	k.affinity = nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec})
	for i := range c.Volumes {
		v, err := nodeaffinity.NewNodeSelector(&c.Volumes[i])
		if err != nil {
			k.problem = fmt.Sprintf("a volume's node affinity can't be read: %v", err)
			return k
		}
		k.volumes = append(k.volumes, v)
	}
	for _, s := range c.Spread {
		r := ks.rule(Term{Key: s.Key, Selector: s.Selector, Namespaces: []string{c.Namespace}}, k)
		if r != nil {
			k.spread = append(k.spread, &spreadRule{rule: r, Spread: s, known: map[string]bool{}})
		}
	}
	for _, t := range c.Affinity {
		if r := ks.rule(t, k); r != nil {
			k.with = append(k.with, r)
		}
	}
	for _, t := range c.AntiAffinity {
		if r := ks.rule(t, k); r != nil {
			r.forbids = true
			k.without = append(k.without, r)
		}
	}
	return k
}

// rule returns the rule of a term, shared by all that have it; nil if the term can't be read, which k then remembers.
func (ks *kinds) rule(t Term, k *kind) *rule {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // plain data
	}
	if r := ks.rules[string(text)]; r != nil {
		return r
	}
	s, err := metav1.LabelSelectorAsSelector(t.Selector)
	if err != nil {
		k.problem = fmt.Sprintf("its label selector can't be read: %v", err)
		return nil
	}
	r := &rule{key: t.Key, selector: s, all: t.AllNamespaces, spaces: t.Namespaces, count: map[string]int{}, holders: map[string]int{}}
	ks.rules[string(text)] = r
	return r
}

// link tells every kind which rules select it. It is called when all kinds are known.
func (ks *kinds) link() {
	for _, k := range ks.all {
		k.selected = nil
		for _, r := range ks.rules {
			if r.selects(k.Constraints) {
				k.selected = append(k.selected, r)
			}
		}
	}
}

// admits reports whether the labels and taints of a node let pods of this kind onto it; the reason is "" if they do.
func (k *kind) admits(n *corev1.Node) (reason string) {
	if !k.anywhere {
		if ok, err := k.affinity.Match(n); err != nil || !ok {
			return "its node selector or node affinity does not match"
		}
		for _, v := range k.volumes {
			if !v.Match(n) {
				return "its volume can't be reached from there"
			}
		}
	}
	if len(n.Spec.Taints) == 0 {
		return ""
	}
	// No taint compares numbers by default; one that does keeps the pod away, which errs on the safe side.
	taint, found := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, k.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	if found {
		return fmt.Sprintf("it does not tolerate the taint %s", taint.ToString())
	}
	return ""
}

// collides reports whether ports of two pods on one node are the same.
func collides(a, b []HostPort) bool {
	for _, p := range a {
		for _, q := range b {
			if p.Port == q.Port && p.Protocol == q.Protocol && (p.IP == q.IP || p.IP == "" || q.IP == "") {
				return true
			}
		}
	}
	return false
}

// asNode returns a node with what admits looks at.
func asNode(name string, labels map[string]string, taints []nodes.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	for _, t := range taints {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return n
}

// counts reports whether a node's domain counts for a spread constraint of a kind.
func (s *spreadRule) counts(k *kind, n *corev1.Node) bool {
	if !s.IgnoreSelectors && !k.anywhere {
		if ok, err := k.affinity.Match(n); err != nil || !ok {
			return false
		}
	}
	if !s.IgnoreTaints && len(n.Spec.Taints) > 0 {
		bare := *k
		bare.anywhere = true
		return bare.admits(n) == ""
	}
	return true
}
