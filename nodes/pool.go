package nodes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/quantity"
)

// DefaultPool is the pool of workers that were launched before there were pools, if one has this name.
const DefaultPool = "default"

// Pool is a kind of nodes that Muster launches. What it leaves out is as the settings say: INSTANCE_TYPES, NODE_LABELS, NODE_TAINTS,
// SPOT and the launch settings of the cloud are the defaults of every pool. A policy without pools launches one kind of nodes, by
// these settings alone.
//
// Among the pools whose nodes would run a pod, the one of the highest weight is chosen, then the cheapest.
type Pool struct {
	Name          string            `json:"name"`
	Weight        int               `json:"weight,omitempty"`
	InstanceTypes []string          `json:"instanceTypes,omitempty"`
	Zones         []string          `json:"zones,omitempty"` // nil: every zone with a subnet
	Labels        map[string]string `json:"labels"`          // nil: NODE_LABELS; empty: none
	Taints        []Taint           `json:"taints"`          // nil: NODE_TAINTS; empty: none
	SpotShare     *int              `json:"spotShare,omitempty"`
	Limits        Limits            `json:"limits,omitzero"`
	Launch        PoolLaunch        `json:"launch,omitzero"`
}

// Limits bound a pool. They are hard: only the open replacement of an interrupted worker may pass them, by that worker. Zero: no limit.
type Limits struct {
	Nodes  int   `json:"nodes,omitempty"`
	CPU    int   `json:"cpu,omitempty"`    // vCPUs of the instance types
	Memory int64 `json:"memory,omitempty"` // bytes of the instance types
}

// PoolLaunch is what the instances of a pool boot from, where that differs from the settings of the cloud. The adapter of the cloud
// knows what each field means; "": as the settings say.
type PoolLaunch struct {
	Template        string   `json:"template,omitempty"`
	TemplateVersion string   `json:"templateVersion,omitempty"`
	AMI             string   `json:"ami,omitempty"`
	SecurityGroups  []string `json:"securityGroups,omitempty"`
	InstanceProfile string   `json:"instanceProfile,omitempty"`
	UserData        string   `json:"userData,omitempty"`
	AgentArgs       string   `json:"agentArgs,omitempty"`
}

// PoolNames lists the pools in the order of the file; none: the policy has one kind of nodes.
func (p Policy) PoolNames() []string {
	var out []string
	for _, pool := range p.Pools {
		out = append(out, pool.Name)
	}
	return out
}

// PoolNamed returns the pool of a name, false if there is none.
func (p Policy) PoolNamed(name string) (Pool, bool) {
	i := slices.IndexFunc(p.Pools, func(o Pool) bool { return o.Name == name })
	if i < 0 {
		return Pool{}, false
	}
	return p.Pools[i], true
}

// PoolOf returns the name of the pool that an instance counts for, "" if it counts for none: one without a pool's tag is of the pool
// named default.
func (p Policy) PoolOf(tag string) string {
	if tag == "" {
		tag = DefaultPool
	}
	if _, ok := p.PoolNamed(tag); !ok {
		return ""
	}
	return tag
}

// In returns the policy as it is for the nodes of one pool: the pool's types, labels, taints and market are in the place of the
// settings. Of a pool that there is none of, it is the policy itself.
func (p Policy) In(name string) Policy {
	if _, ok := p.PoolNamed(name); !ok {
		return p
	}
	if p.Pool == "" {
		p.Pools = p.completePools()
	}
	pool, _ := p.PoolNamed(name)
	p.Pool, p.InstanceTypes, p.NodeLabels, p.NodeTaints = name, pool.InstanceTypes, pool.Labels, pool.Taints
	p.Spot = p.spotShare(pool) > 0
	return p
}

// completePools returns the pools with what they leave to the settings. A narrowed policy needs it of all its pools, because the settings
// in it are those of one.
func (p Policy) completePools() []Pool {
	out := slices.Clone(p.Pools)
	for i := range out {
		pool := &out[i]
		share := p.spotShare(*pool)
		pool.SpotShare = &share
		if len(pool.InstanceTypes) == 0 {
			pool.InstanceTypes = p.InstanceTypes
		}
		if pool.Labels == nil {
			pool.Labels = p.NodeLabels
		}
		if pool.Taints == nil {
			pool.Taints = p.NodeTaints
		}
	}
	return out
}

// spotShare is how much of a pool may be bought as Spot, in percent of its instances.
func (p Policy) spotShare(pool Pool) int {
	switch {
	case pool.SpotShare != nil:
		return *pool.SpotShare
	case p.Spot:
		return 100
	}
	return 0
}

// InPool returns an observation as it is for the nodes of one pool: where they can be launched and what they turned out to be. reach is
// false if the pool has no zone with a subnet.
func (o Observation) InPool(pool Pool) (narrowed Observation, reach bool) {
	o.TemplateSeen = o.PoolsSeen[pool.Name]
	if len(pool.Zones) == 0 {
		return o, true
	}
	if len(o.Zones) == 0 { // not known
		o.Zones = pool.Zones
		return o, true
	}
	o.Zones = slices.DeleteFunc(slices.Clone(o.Zones), func(z string) bool { return !slices.Contains(pool.Zones, z) })
	return o, len(o.Zones) > 0
}

// keepsPodsAway reports whether nodes of the pool have a taint that a pod has to tolerate.
func (p Policy) keepsPodsAway(name string) bool {
	return slices.ContainsFunc(p.In(name).NodeTaints, func(t Taint) bool { return t.Effect != "PreferNoSchedule" })
}

// byWeight returns the pools, those of the highest weight first, else in the order of the file.
func (p Policy) byWeight() []Pool {
	out := slices.Clone(p.Pools)
	slices.SortStableFunc(out, func(a, b Pool) int { return cmp.Compare(b.Weight, a.Weight) })
	return out
}

// String says what the limits are.
func (l Limits) String() string {
	var out []string
	if l.Nodes > 0 {
		out = append(out, quantity.Of(l.Nodes, "node"))
	}
	if l.CPU > 0 {
		out = append(out, fmt.Sprintf("%d vCPU", l.CPU))
	}
	if l.Memory > 0 {
		out = append(out, fmt.Sprintf("%d MiB", l.Memory>>20))
	}
	if len(out) == 0 {
		return "no limit"
	}
	return strings.Join(out, ", ")
}

// PoolState is what the record keeps of a pool.
type PoolState struct {
	Name              string        `json:"name"`
	TemplateSeen      *TemplateSeen `json:"templateSeen,omitempty"`      // as the record's own, of the pool's nodes
	ScaleUpFailures   int           `json:"scaleUpFailures,omitempty"`   // failures in a row
	BackoffUntilEpoch int64         `json:"backoffUntilEpoch,omitempty"` // no scale-up of the pool before this
}

func (s PoolState) clone() PoolState {
	if s.TemplateSeen != nil {
		seen := s.TemplateSeen.clone()
		s.TemplateSeen = &seen
	}
	return s
}

// PoolState returns what the record keeps of a pool. With the name "" it is what the record keeps of a cluster without pools.
func (r Record) PoolState(name string) PoolState {
	if name == "" {
		return PoolState{TemplateSeen: r.TemplateSeen, ScaleUpFailures: r.ScaleUpFailures, BackoffUntilEpoch: r.BackoffUntilEpoch}
	}
	for _, s := range r.PoolStates {
		if s.Name == name {
			return s
		}
	}
	return PoolState{Name: name}
}

// putPool writes what is kept of a pool; a pool of which there is nothing to say leaves no trace. The caller has cloned the record.
func (r *Record) putPool(s PoolState) {
	if s.Name == "" {
		r.TemplateSeen, r.ScaleUpFailures, r.BackoffUntilEpoch = s.TemplateSeen, s.ScaleUpFailures, s.BackoffUntilEpoch
		return
	}
	others := slices.DeleteFunc(r.PoolStates, func(o PoolState) bool { return o.Name == s.Name })
	if s.TemplateSeen != nil || s.ScaleUpFailures != 0 || s.BackoffUntilEpoch != 0 {
		others = append(others, s)
		slices.SortFunc(others, func(a, b PoolState) int { return cmp.Compare(a.Name, b.Name) })
	}
	r.PoolStates = nilIfEmpty(others)
}
