package fit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"github.com/muster-dev/muster/nodes"
)

// Constraints is everything that a pod's placement depends on beyond its requests of CPU and memory. Preferences are not in it: a
// pod whose preferences can't be met runs all the same.
type Constraints struct {
	// Namespace and Labels are what other pods' affinity and spread select a pod by. They are there only if some term looks at them.
	Namespace string            `json:"namespace,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`

	NodeSelector map[string]string     `json:"nodeSelector,omitempty"`
	NodeAffinity *corev1.NodeSelector  `json:"nodeAffinity,omitempty"` // required at scheduling; its terms are alternatives
	Volumes      []corev1.NodeSelector `json:"volumes,omitempty"`      // from where the pod's volumes can be reached; all hold
	Tolerations  []corev1.Toleration   `json:"tolerations,omitempty"`
	Spread       []Spread              `json:"spread,omitempty"`
	Affinity     []Term                `json:"affinity,omitempty"`
	AntiAffinity []Term                `json:"antiAffinity,omitempty"`
	Resources    map[string]int64      `json:"resources,omitempty"` // extended ones such as nvidia.com/gpu, and huge pages
	HostPorts    []HostPort            `json:"hostPorts,omitempty"`
	Impossible   string                `json:"impossible,omitempty"` // why no node could run it, whatever its kind: an unbound volume
}

// Spread is a topology spread constraint that forbids (whenUnsatisfiable: DoNotSchedule).
type Spread struct {
	Key             string                `json:"key"` // of the node label whose values are the domains
	MaxSkew         int32                 `json:"maxSkew"`
	MinDomains      int32                 `json:"minDomains,omitempty"`      // 0: 1
	Selector        *metav1.LabelSelector `json:"selector,omitempty"`        // nil selects nothing
	IgnoreTaints    bool                  `json:"ignoreTaints,omitempty"`    // also domains of nodes that the pod doesn't tolerate count
	IgnoreSelectors bool                  `json:"ignoreSelectors,omitempty"` // also domains of nodes that its selectors rule out count
}

// Term is a required pod affinity or anti-affinity term.
type Term struct {
	Key        string                `json:"key"`                // of the node label whose values are the domains
	Selector   *metav1.LabelSelector `json:"selector,omitempty"` // nil selects nothing
	Namespaces []string              `json:"namespaces,omitempty"`
	// AllNamespaces is set by a namespaceSelector. Namespaces' labels are not read: one that selects some is taken to select all.
	AllNamespaces bool `json:"allNamespaces,omitempty"`
}

// HostPort is a port that a pod occupies on its node.
type HostPort struct {
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`     // TCP, UDP or SCTP
	IP       string `json:"ip,omitempty"` // "" is every address
}

// Claim is what is known of a persistent volume claim.
type Claim struct {
	Affinity *corev1.NodeSelector // of the volume it is bound to; nil: the volume can be reached from everywhere, or there is none yet
	Problem  string               // why no pod can use it as things are, for example that nothing binds it; "" if pods can
}

// Claims looks up the persistent volume claim of a namespace by name.
type Claims func(namespace, name string) Claim

// Encode returns the canonical text of what a pod's placement depends on beyond its requests, for nodes.Pod.Scheduling: "" if on
// nothing. Pods that are placed alike have the same text. It knows the pod alone: its claims are taken to be no obstacle, and its
// labels are left out unless its own terms look at them. An Encoder knows more.
func Encode(pod *corev1.Pod) string {
	return NewEncoder(func(yield func(*corev1.Pod) bool) { yield(pod) }, nil).Encode(pod)
}

// Encoder encodes the pods of one view of a cluster. Of a pod's labels it keeps those that some pod's required affinity or spread
// looks at, which keeps labels that are different for each pod from making each pod a kind of its own.
type Encoder struct {
	claims     Claims
	everywhere map[string]bool            // label keys that terms look at in every namespace; nil: no such term
	within     map[string]map[string]bool // label keys that terms look at, by namespace
}

// NewEncoder returns an Encoder for pods that are seen together, running and pending. claims may be nil: then no claim is an
// obstacle.
func NewEncoder(pods iter.Seq[*corev1.Pod], claims Claims) *Encoder {
	e := &Encoder{claims: claims, within: map[string]map[string]bool{}}
	for pod := range pods {
		for _, s := range spreads(pod) {
			e.look(pod.Namespace, s.Selector)
		}
		affinity, anti := terms(pod)
		for _, t := range append(affinity, anti...) {
			if t.AllNamespaces {
				e.look("", t.Selector)
			}
			for _, ns := range t.Namespaces {
				e.look(ns, t.Selector)
			}
		}
	}
	return e
}

// look notes that a term selects pods of a namespace, "" being all of them, by the keys of a selector.
func (e *Encoder) look(namespace string, s *metav1.LabelSelector) {
	if s == nil {
		return
	}
	keys := e.everywhere
	if namespace != "" {
		keys = e.within[namespace]
	}
	if keys == nil {
		keys = map[string]bool{}
	}
	for k := range s.MatchLabels {
		keys[k] = true
	}
	for _, r := range s.MatchExpressions {
		keys[r.Key] = true
	}
	if namespace == "" {
		e.everywhere = keys
	} else {
		e.within[namespace] = keys
	}
}

// Encode returns the canonical text of one of the pods.
func (e *Encoder) Encode(pod *corev1.Pod) string {
	c := Constraints{
		NodeSelector: pod.Spec.NodeSelector,
		Tolerations:  tolerations(pod),
		Spread:       spreads(pod),
		Resources:    extended(pod),
		HostPorts:    hostPorts(pod),
	}
	c.Affinity, c.AntiAffinity = terms(pod)
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		c.NodeAffinity = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.DeepCopy()
	}
	e.addVolumes(&c, pod)
	if len(pod.Spec.ResourceClaims) > 0 && c.Impossible == "" {
		c.Impossible = "it asks for devices by resource claims, which new nodes are not known to have"
	}
	if within, seen := e.within[pod.Namespace]; seen || e.everywhere != nil {
		c.Namespace = pod.Namespace
		c.Labels = map[string]string{}
		for k, v := range pod.Labels {
			if within[k] || e.everywhere[k] {
				c.Labels[k] = v
			}
		}
	}
	return c.Text()
}

func (e *Encoder) addVolumes(c *Constraints, pod *corev1.Pod) {
	if e.claims == nil {
		return
	}
	for _, v := range pod.Spec.Volumes {
		var name string
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = pod.Name + "-" + v.Name
		default:
			continue
		}
		claim := e.claims(pod.Namespace, name)
		if claim.Problem != "" && c.Impossible == "" {
			c.Impossible = claim.Problem
		}
		if claim.Affinity != nil {
			c.Volumes = append(c.Volumes, *claim.Affinity.DeepCopy())
		}
	}
}

// Requests returns what a pod asks for of CPU and memory, init containers, sidecars, overhead and resizes included, the way the
// scheduler adds it up.
func Requests(pod *corev1.Pod) nodes.Resources {
	r := resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
	return nodes.Resources{MilliCPU: r.Cpu().MilliValue(), Memory: r.Memory().Value()}
}

// AllRequests returns what a pod asks for of every resource, added up as by Requests.
func AllRequests(pod *corev1.Pod) corev1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true})
}

// extended returns what a pod asks for besides CPU, memory and scratch space. Scratch space (ephemeral-storage) is left out because
// how much a node has is a matter of its disk and not of its instance type.
func extended(pod *corev1.Pod) map[string]int64 {
	out := map[string]int64{}
	for name, q := range resource.PodRequests(pod, resource.PodResourcesOptions{UseStatusResources: true}) {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceStorage, corev1.ResourcePods:
		default:
			if q.Value() > 0 {
				out[string(name)] = q.Value()
			}
		}
	}
	return out
}

// tolerations returns those that bear on placement: not those of taints that only rate nodes, nor the two that the API server
// gives every pod, which say how long it stays on a node that has failed.
func tolerations(pod *corev1.Pod) []corev1.Toleration {
	var out []corev1.Toleration
	for _, t := range pod.Spec.Tolerations {
		failing := t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		if t.Effect == corev1.TaintEffectPreferNoSchedule || failing && t.Effect == corev1.TaintEffectNoExecute {
			continue
		}
		if t.Operator == corev1.TolerationOpEqual {
			t.Operator = ""
		}
		t.TolerationSeconds = nil
		out = append(out, t)
	}
	return out
}

func spreads(pod *corev1.Pod) []Spread {
	var out []Spread
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable != corev1.DoNotSchedule {
			continue
		}
		s := Spread{Key: c.TopologyKey, MaxSkew: c.MaxSkew, Selector: withLabelsOf(pod, c.LabelSelector, c.MatchLabelKeys, metav1.LabelSelectorOpIn)}
		if c.MinDomains != nil && *c.MinDomains > 1 {
			s.MinDomains = *c.MinDomains
		}
		s.IgnoreTaints = c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore
		s.IgnoreSelectors = c.NodeAffinityPolicy != nil && *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyIgnore
		out = append(out, s)
	}
	return out
}

func terms(pod *corev1.Pod) (affinity, anti []Term) {
	a := pod.Spec.Affinity
	if a == nil {
		return nil, nil
	}
	convert := func(in []corev1.PodAffinityTerm) (out []Term) {
		for _, t := range in {
			s := withLabelsOf(pod, t.LabelSelector, t.MatchLabelKeys, metav1.LabelSelectorOpIn)
			s = withLabelsOf(pod, s, t.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
			term := Term{Key: t.TopologyKey, Selector: s, Namespaces: slices.Clone(t.Namespaces), AllNamespaces: t.NamespaceSelector != nil}
			if term.AllNamespaces {
				term.Namespaces = nil
			} else if len(term.Namespaces) == 0 {
				term.Namespaces = []string{pod.Namespace}
			}
			out = append(out, term)
		}
		return out
	}
	if a.PodAffinity != nil {
		affinity = convert(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		anti = convert(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	return affinity, anti
}

// withLabelsOf returns a selector narrowed by the pod's own values of some keys. The API server merges them into the selector when it
// creates a pod; doing it again changes nothing then.
func withLabelsOf(pod *corev1.Pod, s *metav1.LabelSelector, keys []string, op metav1.LabelSelectorOperator) *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	s = s.DeepCopy()
	for _, k := range keys {
		if v, ok := pod.Labels[k]; ok {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: k, Operator: op, Values: []string{v}})
		}
	}
	return s
}

func hostPorts(pod *corev1.Pod) []HostPort {
	var out []HostPort
	add := func(c corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out = append(out, HostPort{Port: p.HostPort, Protocol: cmp.Or(string(p.Protocol), "TCP"), IP: p.HostIP})
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		add(c)
	}
	for _, c := range pod.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways { // a sidecar
			add(c)
		}
	}
	return out
}

// Text returns the canonical text of c, "" if nothing is constrained. Decode reads it.
func (c Constraints) Text() string {
	c = c.canonical()
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // there is nothing in it that can't be encoded
	}
	if string(b) == "{}" {
		return ""
	}
	return string(b)
}

// Decode reads what Encode wrote.
func Decode(text string) (Constraints, error) {
	var c Constraints
	if text == "" {
		return c, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&c)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows its end")
		}
	}
	if err != nil {
		return Constraints{}, fmt.Errorf("reading a pod's placement constraints: %w: they were not written by this version of package fit", err)
	}
	return c.canonical(), nil
}

// canonical returns a copy of c in which order and spelling carry no meaning any more: what means the same is the same.
func (c Constraints) canonical() Constraints {
	c.Labels, c.NodeSelector, c.Resources = dropEmpty(c.Labels), dropEmpty(c.NodeSelector), dropEmpty(c.Resources)
	if c.NodeAffinity != nil {
		n := canonicalNodeSelector(*c.NodeAffinity)
		c.NodeAffinity = &n
	}
	c.Volumes = distinct(c.Volumes, canonicalNodeSelector)
	c.Tolerations = distinct(c.Tolerations, func(t corev1.Toleration) corev1.Toleration { return t })
	c.Spread = distinct(c.Spread, func(s Spread) Spread {
		s.Selector = canonicalSelector(s.Selector)
		return s
	})
	term := func(t Term) Term {
		t.Selector = canonicalSelector(t.Selector)
		t.Namespaces = distinct(t.Namespaces, func(s string) string { return s })
		return t
	}
	c.Affinity, c.AntiAffinity = distinct(c.Affinity, term), distinct(c.AntiAffinity, term)
	c.HostPorts = distinct(c.HostPorts, func(p HostPort) HostPort {
		if p.IP == "0.0.0.0" || p.IP == "::" {
			p.IP = ""
		}
		return p
	})
	return c
}

func dropEmpty[V any](m map[string]V) map[string]V {
	if len(m) == 0 {
		return nil
	}
	return m
}

// distinct returns the elements of a set in their canonical form and order, each once, nil if there are none.
func distinct[T any](in []T, canonical func(T) T) []T {
	if len(in) == 0 {
		return nil
	}
	type keyed struct {
		key []byte
		v   T
	}
	all := make([]keyed, len(in))
	for i, v := range in {
		v = canonical(v)
		b, err := json.Marshal(v)
		if err != nil {
			panic(err) // plain data
		}
		all[i] = keyed{b, v}
	}
	slices.SortFunc(all, func(a, b keyed) int { return bytes.Compare(a.key, b.key) })
	all = slices.CompactFunc(all, func(a, b keyed) bool { return bytes.Equal(a.key, b.key) })
	out := make([]T, len(all))
	for i, k := range all {
		out[i] = k.v
	}
	return out
}

func canonicalNodeSelector(s corev1.NodeSelector) corev1.NodeSelector {
	requirement := func(r corev1.NodeSelectorRequirement) corev1.NodeSelectorRequirement {
		if r.Operator == corev1.NodeSelectorOpIn || r.Operator == corev1.NodeSelectorOpNotIn {
			r.Values = distinct(r.Values, func(v string) string { return v })
		} else if len(r.Values) == 0 {
			r.Values = nil
		}
		return r
	}
	s.NodeSelectorTerms = distinct(s.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: distinct(t.MatchExpressions, requirement), MatchFields: distinct(t.MatchFields, requirement)}
	})
	return s
}

// canonicalSelector writes a selector as expressions alone.
func canonicalSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	var all []metav1.LabelSelectorRequirement
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, metav1.LabelSelectorRequirement{Key: k, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[k]}})
	}
	all = append(all, s.MatchExpressions...)
	return &metav1.LabelSelector{MatchExpressions: distinct(all, func(r metav1.LabelSelectorRequirement) metav1.LabelSelectorRequirement {
		r.Values = distinct(r.Values, func(v string) string { return v })
		return r
	})}
}
