package nodes

import (
	"errors"
	"testing"
)

func TestNoteTemplate(t *testing.T) {
	r := Record{LeaseFence: 7}
	seen := TemplateSeen{Template: "t", InstanceID: "i-1", Lacks: []string{"team=a"}, Taints: []Taint{{Key: "x", Effect: "NoSchedule"}}}
	if _, err := (NoteTemplate{Fence: 6, Seen: seen}).Apply(r); !errors.Is(err, ErrStaleFence) {
		t.Errorf("a stale fence: %v", err)
	}
	noted, changed, err := Applied(r, NoteTemplate{Fence: 7, Seen: seen})
	if err != nil || !changed || noted.TemplateSeen.Text() != "i-1 joined without the label team=a, with the taint x:NoSchedule" {
		t.Fatalf("%+v, %v", noted.TemplateSeen, err)
	}
	if _, changed, _ := Applied(noted, NoteTemplate{Fence: 7, Seen: seen}); changed {
		t.Error("made again, it changes something")
	}
	c := noted.Clone()
	c.TemplateSeen.Lacks[0] = "other"
	if noted.TemplateSeen.Lacks[0] != "team=a" {
		t.Error("a clone shares what it holds")
	}
	if cleared, _, err := Applied(noted, NoteTemplate{Fence: 7, Seen: TemplateSeen{Template: "t"}}); err != nil || cleared.TemplateSeen != nil {
		t.Errorf("as promised: %+v, %v", cleared.TemplateSeen, err)
	}
}

func TestCompareNode(t *testing.T) {
	p := Policy{NodeLabels: map[string]string{"team": "a", "empty": ""}, NodeTaints: []Taint{{Key: "batch", Value: "true", Effect: "NoSchedule"}}}
	for name, c := range map[string]struct {
		labels map[string]string
		taints []Taint
		want   string
	}{
		"as promised":         {map[string]string{"team": "a", "empty": "", "more": "x", typeLabel: "m", zoneLabel: "z"}, append([]Taint{{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"}}, p.NodeTaints...), ""},
		"another value":       {map[string]string{"team": "b", "empty": ""}, p.NodeTaints, "i-1 joined without the label team=a"},
		"no labels":           {nil, p.NodeTaints, "i-1 joined without the label empty=, team=a"},
		"K3s' own type":       {map[string]string{"team": "a", "empty": "", typeLabel: "k3s"}, p.NodeTaints, "i-1 joined without the label " + typeLabel + "=m"},
		"no taint":            {map[string]string{"team": "a", "empty": ""}, nil, "i-1 joined without the taint batch=true:NoSchedule"},
		"a taint of its own":  {map[string]string{"team": "a", "empty": ""}, append([]Taint{{Key: "gpu", Effect: "NoExecute"}}, p.NodeTaints...), "i-1 joined with the taint gpu:NoExecute"},
		"one that only hints": {map[string]string{"team": "a", "empty": ""}, append([]Taint{{Key: "gpu", Effect: "PreferNoSchedule"}}, p.NodeTaints...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := Worker{Instance: Instance{ID: "i-1", Type: "m", Zone: "z"}, Node: &Node{Labels: c.labels, Taints: c.taints}}
			if got := Differs(p, w); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
