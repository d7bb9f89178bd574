package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// Pool is a kind of nodes, with what counts against its limits.
type Pool struct {
	Name   string `json:"name"`
	Weight int    `json:"weight,omitempty"`
	Nodes  int    `json:"nodes"` // and launches in flight
	Spot   int    `json:"spot"`  // of them
	Limits string `json:"limits"`
	Held   string `json:"held,omitempty"`  // why nothing is launched in it now
	Lacks  string `json:"lacks,omitempty"` // how its nodes differ from what it says
}

// poolsOf shows the pools of a policy; nil without pools.
func poolsOf(s nodes.Snapshot) []Pool {
	var out []Pool
	for _, p := range explain.Pools(s.Policy, s.Observation, s.Record, s.Now) {
		out = append(out, Pool{Name: p.Name, Weight: p.Weight, Nodes: p.Nodes, Spot: p.Spot, Limits: p.Limits, Held: heldBack(p, s.Decision), Lacks: p.Differs})
	}
	return out
}

// heldBack says why a pool may launch nothing, by the last decision; "" if it may, or if that did not look at it.
func heldBack(p explain.Pool, d nodes.Decision) string {
	if p.Backoff > 0 {
		return fmt.Sprintf("back-off for %s after %s", time.Duration(p.Backoff)*time.Second, quantity.Of(p.Failures, "failure"))
	}
	i := slices.IndexFunc(d.Gates, func(g nodes.Gate) bool { return g.Name == "pool."+p.Name })
	if i < 0 || d.Gates[i].Passed {
		return ""
	}
	use, why, other := strings.Cut(d.Gates[i].Value, "; ")
	if other {
		return why
	}
	return "at its limit: it uses " + use
}
