package nodes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// TemplateSeen is what nodes that were launched from one template turned out to be, where that differs from what the settings promise.
// It is kept in the record, so that a node that did not help a pod is not launched for it again after the node has gone or Muster was
// restarted. It holds until the template, NODE_LABELS or NODE_TAINTS change, or until a node joins that is as promised.
type TemplateSeen struct {
	Template   string               `json:"template"`             // fingerprint of the template and of what it promises
	InstanceID string               `json:"instanceId,omitempty"` // of the node that showed Lacks, LacksTaints and Taints
	Lacks      []string             `json:"lacks,omitempty"`      // labels that it does not have, NAME=VALUE
	LacksTaint []Taint              `json:"lacksTaints,omitempty"`
	Taints     []Taint              `json:"taints,omitempty"`               // that it has and NODE_TAINTS does not name
	Sizes      map[string]Resources `json:"sizes,omitempty"`                // least allocatable, by instance type
	Unchecked  []string             `json:"uncheckedInstanceIds,omitempty"` // whose nodes could not be seen when they were verified by the metrics
}

// differs reports whether the node was not as promised.
func (s TemplateSeen) differs() bool {
	return len(s.Lacks) > 0 || len(s.LacksTaint) > 0 || len(s.Taints) > 0
}

// Text says how nodes of the template differ from what the settings promise, "" if they don't.
func (s TemplateSeen) Text() string {
	var out []string
	if len(s.Lacks) > 0 {
		out = append(out, "without the label "+strings.Join(s.Lacks, ", "))
	}
	for _, t := range s.LacksTaint {
		out = append(out, "without the taint "+t.String())
	}
	for _, t := range s.Taints {
		out = append(out, "with the taint "+t.String())
	}
	if len(out) == 0 {
		return ""
	}
	return s.InstanceID + " joined " + strings.Join(out, ", ")
}

// LacksLabel reports whether nodes of the template come without a label.
func (s TemplateSeen) LacksLabel(name string) bool {
	return slices.ContainsFunc(s.Lacks, func(l string) bool { return strings.HasPrefix(l, name+"=") })
}

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// fingerprint is of everything that a new node's labels and taints depend on.
func fingerprint(t Template, p Policy) string {
	text, err := json.Marshal(struct {
		Template Template
		Labels   map[string]string
		Taints   []Taint
	}{t, p.NodeLabels, p.NodeTaints})
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// The labels that Muster's user data and the packing take from the instance. A node can have another value, as K3s before 1.29.3
// gives it another instance type.
const (
	typeLabel = "node.kubernetes.io/instance-type"
	zoneLabel = "topology.kubernetes.io/zone"
)

// compareNode says how a node differs from what was promised. Taints of Kubernetes itself come and go.
func compareNode(p Policy, w Worker) TemplateSeen {
	s := TemplateSeen{InstanceID: w.Instance.ID}
	for _, name := range slices.Sorted(maps.Keys(p.NodeLabels)) {
		if v, ok := w.Node.Labels[name]; !ok || v != p.NodeLabels[name] {
			s.Lacks = append(s.Lacks, name+"="+p.NodeLabels[name])
		}
	}
	for name, value := range map[string]string{typeLabel: w.Instance.Type, zoneLabel: w.Instance.Zone} {
		if v, ok := w.Node.Labels[name]; ok && v != value {
			s.Lacks = append(s.Lacks, name+"="+value)
		}
	}
	slices.Sort(s.Lacks)
	for _, t := range p.NodeTaints {
		if !slices.Contains(w.Node.Taints, t) {
			s.LacksTaint = append(s.LacksTaint, t)
		}
	}
	for _, t := range w.Node.Taints {
		if !slices.Contains(p.NodeTaints, t) && !strings.Contains(t.Key, "kubernetes.io/") && t.Effect != "PreferNoSchedule" {
			s.Taints = append(s.Taints, t)
		}
	}
	return s
}

// Differs says how a worker that has joined differs from what NODE_LABELS and NODE_TAINTS say of new nodes, "" if it does not.
func Differs(p Policy, w Worker) string { return compareNode(p, w).Text() }

// launchedNow lists the instances that are known to come from the current template: those of the open scale-up, open replacements,
// and the one that was found to differ, which may have got its labels meanwhile.
func (t *run) launchedNow(s *survey, template string) []string {
	var out []string
	if seen := s.record.TemplateSeen; seen != nil && seen.Template == template && seen.differs() {
		out = append(out, seen.InstanceID)
	}
	if seen := s.record.TemplateSeen; seen != nil && seen.Template == template {
		out = append(out, seen.Unchecked...)
	}
	for _, l := range s.record.ScaleUpLaunches {
		if l.Request.Template == t.config.Template {
			out = append(out, l.InstanceID)
		}
	}
	for _, i := range s.open {
		if i.ReplacementID != "" && i.Intent != nil && i.Intent.Request.Template == t.config.Template {
			out = append(out, i.ReplacementID)
		}
	}
	return out
}

// noteTemplate compares the nodes that have just joined with what the settings promise and writes down what differs. A node that
// differs is capacity like every other, for the pods that its real labels and taints let onto it.
func (t *run) noteTemplate(ctx context.Context, s *survey) error {
	if s.cloudErr != nil || s.viewErr != nil {
		return nil
	}
	template := fingerprint(t.config.Template, t.config.Policy)
	next := TemplateSeen{Template: template}
	if was := s.record.TemplateSeen; was != nil && was.Template == template {
		next = *was
		next.Sizes = maps.Clone(was.Sizes)
	}
	for _, id := range t.launchedNow(s, template) {
		w, ok := s.worker(id)
		if !ok || !w.Instance.Alive() || w.Node != nil && w.Node.Ready {
			next.Unchecked = slices.DeleteFunc(slices.Clone(next.Unchecked), func(o string) bool { return o == id })
		}
		if !ok || w.Node == nil || !w.Node.Ready || !w.Instance.Alive() {
			continue
		}
		seen := compareNode(t.config.Policy, w)
		if seen.differs() && next.Text() != seen.Text() {
			t.log.report(ctx, "template.differs", id, "%s: it is not counted for pods that need it otherwise; see NODE_LABELS, NODE_TAINTS and the user data", seen.Text())
		}
		seen.Template, seen.Sizes, seen.Unchecked = template, next.Sizes, next.Unchecked
		if t.config.Screener != nil {
			seen.size(w)
		}
		if !seen.differs() {
			seen.InstanceID = ""
		}
		next = seen
	}
	note := NoteTemplate{Fence: t.state.fence, Seen: next}
	if after, err := note.Apply(t.state.record); err == nil && reflect.DeepEqual(after.TemplateSeen, t.state.record.TemplateSeen) {
		return nil // most ticks: no write
	}
	return t.state.apply(ctx, note)
}

// size keeps the least that a node of the instance's type has offered.
func (s *TemplateSeen) size(w Worker) {
	a, ok := s.Sizes[w.Instance.Type]
	n := w.Node.Allocatable
	if !ok {
		a = n
	}
	if s.Sizes == nil {
		s.Sizes = map[string]Resources{}
	}
	s.Sizes[w.Instance.Type] = Resources{MilliCPU: min(a.MilliCPU, n.MilliCPU), Memory: min(a.Memory, n.Memory), Pods: min(a.Pods, n.Pods)}
}

// uncheck notes instances to be compared as soon as their nodes can be seen; the caller owns r.
func (r *Record) uncheck(template string, ids []string) {
	if len(ids) == 0 {
		return
	}
	if r.TemplateSeen == nil || r.TemplateSeen.Template != template {
		r.TemplateSeen = &TemplateSeen{Template: template}
	}
	r.TemplateSeen.Unchecked = ids
}

// unchecked lists the open scale-up's instances of the current template, if their nodes can't be seen now.
func (t *run) unchecked(s *survey) []string {
	if s.viewErr == nil {
		return nil
	}
	var out []string
	for _, l := range t.state.record.ScaleUpLaunches {
		if l.Request.Template == t.config.Template {
			out = append(out, l.InstanceID)
		}
	}
	return out
}

// NoteTemplate writes what nodes of the current template turned out to be.
type NoteTemplate struct {
	Fence int64
	Seen  TemplateSeen
}

// Name returns noteTemplate.
func (NoteTemplate) Name() string { return "noteTemplate" }

// Apply replaces what was known; nothing is kept of a template whose nodes are as promised.
func (t NoteTemplate) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	r = r.Clone()
	r.TemplateSeen = nil
	if t.Seen.differs() || len(t.Seen.Sizes) > 0 || len(t.Seen.Unchecked) > 0 {
		s := t.Seen.clone()
		r.TemplateSeen = &s
	}
	return r, nil
}

func (s TemplateSeen) clone() TemplateSeen {
	s.Lacks, s.LacksTaint, s.Taints = slices.Clone(s.Lacks), slices.Clone(s.LacksTaint), slices.Clone(s.Taints)
	s.Sizes, s.Unchecked = maps.Clone(s.Sizes), slices.Clone(s.Unchecked)
	return s
}

// inVain names a worker that was launched while the pods waited and that has taken none since, in one zone or, if every is true, in
// each one in which nodes can be launched. The scheduler has had its time to place a pod there, so another node of any kind would
// most likely stay empty as well.
func (in inputs) inVain(every bool) (why string) {
	since := in.r.PendingSinceEpoch.Value()
	if since == 0 || every && len(in.o.Zones) == 0 {
		return ""
	}
	empty := map[string]string{} // instance by zone
	for _, w := range in.o.Fleet {
		if w.Instance.ActionID == "" || !w.Available() || len(w.Node.Pods) > 0 || w.Node.CreatedAt.Unix() <= since {
			continue
		}
		if in.now.Sub(w.Node.CreatedAt) >= max(settleTime, in.p.PendingUpFor) {
			empty[w.Instance.Zone] = w.Instance.ID
		}
	}
	if every {
		for _, z := range in.o.Zones {
			if empty[z] == "" {
				return ""
			}
		}
	}
	for _, z := range slices.Sorted(maps.Keys(empty)) {
		return fmt.Sprintf("launched in vain: %s joined while the pods waited and has taken none of them; compare its labels, taints and size with what they ask for", empty[z])
	}
	return ""
}
