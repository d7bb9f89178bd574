package nodes

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// TemplateSeen is what nodes that were launched from one template turned out to be, where that differs from
// what the settings promise. It is kept in the record, so that a node that did not help a pod is not launched
// for it again after the node has gone or Muster was restarted. It holds until the template, NODE_LABELS or
// NODE_TAINTS change, or until a node joins that is as promised.
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

// keepSize keeps the least that a node of an instance type has offered.
func (s *TemplateSeen) keepSize(instanceType string, offered Resources) {
	least, ok := s.Sizes[instanceType]
	if !ok {
		least = offered
	}
	if s.Sizes == nil {
		s.Sizes = map[string]Resources{}
	}
	s.Sizes[instanceType] = Resources{
		MilliCPU: min(least.MilliCPU, offered.MilliCPU),
		Memory:   min(least.Memory, offered.Memory),
		Pods:     min(least.Pods, offered.Pods),
	}
}

func (s TemplateSeen) clone() TemplateSeen {
	s.Lacks, s.LacksTaint, s.Taints = slices.Clone(s.Lacks), slices.Clone(s.LacksTaint), slices.Clone(s.Taints)
	s.Sizes, s.Unchecked = maps.Clone(s.Sizes), slices.Clone(s.Unchecked)
	return s
}

// fingerprint identifies everything that a new node's labels and taints depend on. It is in the tags of instances: if it changed from
// one version of Muster to the next, every worker would have drifted. A new field of Template is therefore omitted while it is empty.
func fingerprint(t Template, p Policy) string {
	// The order of taints, and whether there are none or no list of them, is of no matter to a node.
	taints := slices.SortedFunc(slices.Values(p.NodeTaints), func(a, b Taint) int { return cmp.Compare(a.String(), b.String()) })
	labels := p.NodeLabels
	if len(labels) == 0 {
		labels = nil
	}
	text, err := json.Marshal(struct {
		Template Template
		Labels   map[string]string
		Taints   []Taint
	}{t, labels, taints})
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
