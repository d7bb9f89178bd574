package nodes

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// The labels that Muster's user data and the packing take from the instance. A node can have another value,
// as K3s before 1.29.3 gives it another instance type.
const (
	typeLabel = "node.kubernetes.io/instance-type"
	zoneLabel = "topology.kubernetes.io/zone"
)

// templateCheck compares nodes with what the settings promise of nodes of the current template.
type templateCheck struct{ *run }

// note compares the nodes that have just joined and writes down what differs, pool by pool. A node that differs is
// capacity like every other, for the pods that its real labels and taints let onto it.
func (c templateCheck) note(ctx context.Context, s *survey) error {
	if s.cloudErr != nil || s.viewErr != nil {
		return nil
	}
	if len(c.config.Policy.Pools) == 0 {
		return c.noteOf(ctx, s, "")
	}
	for _, name := range c.config.Policy.PoolNames() {
		if err := c.noteOf(ctx, s, name); err != nil {
			return err
		}
	}
	return nil
}

// noteOf compares the nodes of one pool; "" stands for a cluster without pools.
func (c templateCheck) noteOf(ctx context.Context, s *survey, pool string) error {
	template := c.config.templateHash(pool)
	next := TemplateSeen{Template: template}
	if was := s.record.PoolState(pool).TemplateSeen; was != nil && was.Template == template {
		next = *was
		next.Sizes = maps.Clone(was.Sizes)
	}

	for _, id := range c.launchedNow(s, pool, template) {
		w, listed := s.worker(id)
		gone := !listed || !w.Instance.Alive()
		ready := w.Node != nil && w.Node.Ready
		if gone || ready {
			next.Unchecked = slices.DeleteFunc(slices.Clone(next.Unchecked), func(o string) bool { return o == id })
		}
		if ready && !gone {
			next = c.compared(ctx, pool, next, w)
		}
	}

	note := NoteTemplate{Fence: c.state.fence, Pool: pool, Seen: next}
	if after, err := note.Apply(c.state.record); err == nil && reflect.DeepEqual(after.PoolState(pool), c.state.record.PoolState(pool)) {
		return nil // most ticks: no write
	}
	return c.state.apply(ctx, note)
}

// compared returns what is known of the template after one more of its nodes.
func (c templateCheck) compared(ctx context.Context, pool string, known TemplateSeen, w Worker) TemplateSeen {
	seen := compareNode(c.config.Policy.In(pool), w)
	of := ""
	if pool != "" {
		of = "pool " + pool + ": "
	}
	if seen.differs() && known.Text() != seen.Text() {
		c.log.report(ctx, "template.differs", w.Instance.ID, of+"%s: it is not counted for pods that need it otherwise; see NODE_LABELS, NODE_TAINTS and the user data", seen.Text())
	}
	seen.Template, seen.Sizes, seen.Unchecked = known.Template, known.Sizes, known.Unchecked
	if c.config.Screener != nil {
		seen.keepSize(w.Instance.Type, w.Node.Allocatable)
	}
	if !seen.differs() {
		seen.InstanceID = ""
	}
	return seen
}

// launchedNow lists the instances that are known to come from the current template: those of the open
// scale-up, open replacements, and the one that was found to differ, which may have got its labels meanwhile.
func (c templateCheck) launchedNow(s *survey, pool, template string) []string {
	var out []string
	current := func(r LaunchRequest) bool { return r.Template == c.config.template(pool) && r.Offering.Pool == pool }
	if seen := s.record.PoolState(pool).TemplateSeen; seen != nil && seen.Template == template {
		if seen.differs() {
			out = append(out, seen.InstanceID)
		}
		out = append(out, seen.Unchecked...)
	}
	for _, l := range s.record.Launches() {
		if current(l.Request) {
			out = append(out, l.InstanceID)
		}
	}
	for _, i := range s.open {
		if i.ReplacementID != "" && i.Intent != nil && current(i.Intent.Request) {
			out = append(out, i.ReplacementID)
		}
	}
	return out
}

// compareNode says how a node differs from what the settings promise. Taints of Kubernetes itself come and go.
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

// Differs says how a worker that has joined differs from what NODE_LABELS and NODE_TAINTS, or its pool, say of new
// nodes, "" if it does not.
func Differs(p Policy, w Worker) string {
	return compareNode(p.In(p.PoolOf(w.Instance.Pool)), w).Text()
}
