package connect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
)

// checkPromised compares NODE_LABELS and NODE_TAINTS, which placement goes by, with the arguments of the agents and with the newest
// worker that Muster launched. A fleet that can't be read is told of by other checks.
func checkPromised(ctx context.Context, s Settings, cloud nodes.Cloud, cluster nodes.Cluster) []nodes.Check {
	out := promisedByKinds(s.EC2)
	instances, err := cloud.Workers(ctx)
	if err != nil {
		return out
	}
	view, err := cluster.View(ctx)
	if err != nil {
		return out
	}
	newest := map[string]nodes.Worker{} // by pool
	for _, w := range nodes.Match(instances, view.Nodes) {
		pool := s.Policy.PoolOf(w.Instance.Pool)
		ours := w.Instance.ActionID != "" && (pool != "" || len(s.Policy.Pools) == 0)
		if ours && w.Available() && w.Instance.LaunchedAt.After(newest[pool].Instance.LaunchedAt) {
			newest[pool] = w
		}
	}
	for _, pool := range slices.Sorted(maps.Keys(newest)) {
		out = append(out, promisedByNode(s, pool, newest[pool]))
	}
	return out
}

// promisedByNode compares the newest worker of a pool with what the pool, or the settings, say of it.
func promisedByNode(s Settings, pool string, newest nodes.Worker) nodes.Check {
	c := nodes.Check{Name: "nodes: as NODE_LABELS and NODE_TAINTS say", OK: true, Detail: newest.Instance.ID + ", the newest that was launched, is"}
	if pool != "" {
		c.Name = "pool " + pool + ": nodes as its labels and taints say"
	}
	if why := nodes.Differs(s.Policy, newest); why != "" {
		c.OK, c.Detail = false, fmt.Sprintf("%s (launched %s)", why, newest.Instance.LaunchedAt.UTC().Format("2006-01-02 15:04"))
		c.Fix = "let the user data give new nodes what the settings say, or the settings say what it gives; a worker that is older than the settings need not have it"
	}
	return c
}

// promisedByKinds checks what the agents of each kind of nodes are started with.
func promisedByKinds(c ec2.Config) []nodes.Check {
	if len(c.Pools) == 0 {
		return []nodes.Check{promisedByArgs(c)}
	}
	var out []nodes.Check
	for _, pool := range c.Pools {
		check := promisedByArgs(c.In(pool))
		check.Name = "pool " + pool.Name + ": labels and taints"
		out = append(out, check)
	}
	return out
}

// promisedByArgs checks what the agents are started with. On K3s' command line a repeatable argument replaces the list of the
// configuration file, in which the user data gives a node its zone, region and type.
func promisedByArgs(c ec2.Config) nodes.Check {
	check := nodes.Check{Name: "setting: NODE_LABELS, NODE_TAINTS", OK: true, Detail: "given to new nodes by the user data"}
	if c.UserData != ec2.UserDataK3s {
		check.Detail = fmt.Sprintf("USER_DATA is %s, which has to give them itself", c.UserData)
		return check
	}
	for flag, env := range map[string]string{"--node-label": "NODE_LABELS", "--node-taint": "NODE_TAINTS"} {
		for _, arg := range strings.Fields(c.Join.Args) {
			if arg == flag || strings.HasPrefix(arg, flag+"=") {
				check.OK, check.Detail = false, fmt.Sprintf("K3S_AGENT_ARGS has %s, of which placement knows nothing, and which replaces what the user data writes into K3s' configuration", flag)
				check.Fix = "move it into " + env
			}
		}
	}
	return check
}
