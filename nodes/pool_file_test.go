package nodes

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/muster-dev/muster/setting"
)

const twoPools = `[
	{"name": "general", "weight": 10, "instanceTypes": ["m7i.large", "m6i.large"], "zones": ["a", "b"], "spotShare": 60,
	 "limits": {"nodes": 8, "cpu": 32, "memory": "64Gi"}, "labels": {}, "taints": []},
	{"name": "batch", "labels": {"team": "batch"}, "taints": ["batch=true:NoSchedule"], "launch": {"template": "lt-1", "templateVersion": 3}}
]`

func poolsFrom(text string) (Policy, error) {
	return PolicyFromEnv(env(map[string]string{"POOLS": text, "SIZING": "fit", "NODE_LABELS": "team=a", "NODE_TAINTS": "own=x:NoSchedule"}))
}

func TestPools(t *testing.T) {
	p, err := poolsFrom(twoPools)
	if err != nil {
		t.Fatal(err)
	}
	general, batch := p.Pools[0], p.Pools[1]

	if got, want := general.Limits, (Limits{Nodes: 8, CPU: 32, Memory: 64 << 30}); got != want {
		t.Errorf("limits are %+v, want %+v", got, want)
	}
	if general.Weight != 10 || *general.SpotShare != 60 || !slices.Equal(general.Zones, []string{"a", "b"}) {
		t.Errorf("got %+v", general)
	}
	if in := p.In("general"); len(in.NodeLabels) != 0 || len(in.NodeTaints) != 0 || in.InstanceTypes[0] != "m7i.large" {
		t.Errorf("a pool with no labels and taints of its own choice has %v, %v and types %v", in.NodeLabels, in.NodeTaints, in.InstanceTypes)
	}
	if in := p.In("batch"); in.NodeLabels["team"] != "batch" || in.NodeTaints[0].Key != "batch" || !slices.Equal(in.InstanceTypes, p.InstanceTypes) {
		t.Errorf("narrowed to batch it is %v, %v, %v", in.NodeLabels, in.NodeTaints, in.InstanceTypes)
	}
	if batch.Launch.TemplateVersion != "3" {
		t.Errorf("a version that is a number is read as %q", batch.Launch.TemplateVersion)
	}

	t.Run("a pool that leaves something out has what the settings say", func(t *testing.T) {
		p, err := poolsFrom(`[{"name": "rest"}]`)
		if err != nil {
			t.Fatal(err)
		}
		if in := p.In("rest"); in.NodeLabels["team"] != "a" || in.NodeTaints[0].Key != "own" || !in.Spot {
			t.Errorf("it has %v, %v, spot %t", in.NodeLabels, in.NodeTaints, in.Spot)
		}
	})
	t.Run("a snapshot keeps them", func(t *testing.T) {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Policy
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if in := back.In("general"); len(in.NodeTaints) != 0 || back.Pools[0].Limits != general.Limits || *back.Pools[0].SpotShare != 60 {
			t.Errorf("got %+v", back.Pools[0])
		}
	})
	t.Run("without pools the policy says nothing of them", func(t *testing.T) {
		text, err := json.Marshal(DefaultPolicy())
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"Pools", "Pool"} {
			if _, there := fields[name]; there {
				t.Errorf("%s is in a snapshot without pools", name)
			}
		}
	})
	t.Run("they want packing", func(t *testing.T) {
		_, err := PolicyFromEnv(env(map[string]string{"POOLS": twoPools}))
		var all *setting.Error
		if !errors.As(err, &all) || len(all.Problems) != 1 || all.Problems[0].Setting != "SIZING" {
			t.Errorf("got %v", err)
		}
	})
}

func TestPoolsWrongInEveryField(t *testing.T) {
	_, err := poolsFrom(`[
		{"name": "Batch", "weight": -1, "instanceTypes": [], "zones": "a", "labels": {"team": 1}, "taints": ["x:Never"], "spotShare": 101,
		 "limits": {"nodes": 0, "cpu": 1.5, "memory": "64GB", "disk": 3}, "launch": {"ami": "", "securityGroups": [1]}, "typo": 1},
		{"weight": 2}, "third", {"name": "twin"}, {"name": "twin"}
	]`)
	var all *setting.Error
	if !errors.As(err, &all) {
		t.Fatalf("got %v, want a *setting.Error", err)
	}
	var got []string
	for _, p := range all.Problems {
		got = append(got, p.Setting)
		if p.Fix == "" {
			t.Errorf("%s has no fix", p.Setting)
		}
	}
	want := []string{
		"POOLS[0].instanceTypes", "POOLS[0].labels", "POOLS[0].launch.ami", "POOLS[0].launch.securityGroups", "POOLS[0].limits.cpu", "POOLS[0].limits.disk",
		"POOLS[0].limits.memory", "POOLS[0].limits.nodes", "POOLS[0].name", "POOLS[0].spotShare", "POOLS[0].taints", "POOLS[0].typo", "POOLS[0].weight", "POOLS[0].zones",
		"POOLS[1].name", "POOLS[2]", "POOLS[twin].name",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("complained about\n%v\nwant\n%v\nin\n%v", got, want, err)
	}
	for _, text := range []string{"many", "{}", "[] []"} {
		if _, err := poolsFrom(text); err == nil {
			t.Errorf("%q is taken for pools", text)
		}
	}
}

func TestSpotShareOfAPool(t *testing.T) {
	p, err := poolsFrom(`[{"name": "half", "spotShare": 50}, {"name": "none", "spotShare": 0}, {"name": "all"}]`)
	if err != nil {
		t.Fatal(err)
	}
	size := func(string) (Resources, bool) { return Resources{MilliCPU: 2000}, true }
	for _, c := range []struct {
		pool        string
		spot, nodes int
		want        bool
	}{
		{"half", 0, 0, false}, {"half", 0, 1, true}, {"half", 1, 2, false}, {"half", 1, 3, true}, {"none", 0, 5, false}, {"all", 0, 0, true}, {"all", 4, 4, true},
	} {
		pool, _ := p.PoolNamed(c.pool)
		a := newAllowance(p, pool, PoolUse{Nodes: c.nodes, Spot: c.spot}, size)
		if got := a.permits(Offering{Type: "m", Market: Spot}); got != c.want {
			t.Errorf("%s with %d of %d as Spot: another as Spot is permitted %t, want %t", c.pool, c.spot, c.nodes, got, c.want)
		}
		if !a.permits(Offering{Type: "m", Market: OnDemand}) {
			t.Errorf("%s with %d of %d as Spot: On-Demand is not permitted", c.pool, c.spot, c.nodes)
		}
	}
	if p.In("none").Spot {
		t.Error("a pool without Spot would try it")
	}
}
