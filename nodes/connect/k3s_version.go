package connect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/kube"
)

// checkK3sVersion compares what new nodes install with what the server runs. Without K3S_VERSION, a node whose image brings no K3s
// installs the stable channel's, which gets ahead of a server that is not upgraded; what has joined shows whether it has.
func checkK3sVersion(c ec2.Config, v kube.Versions) nodes.Check {
	check := nodes.Check{Name: "nodes: K3s no newer than the server's", OK: true, Detail: "server " + v.Server}
	fix := "set K3S_VERSION to a release of the server's minor version"
	if strings.Contains(v.Server, "+k3s") {
		fix = "set K3S_VERSION=" + v.Server + ", which the server runs"
	}
	switch {
	case c.UserData != ec2.UserDataK3s:
		check.Detail += fmt.Sprintf("; USER_DATA is %s, which chooses the version of new nodes", c.UserData)
	case c.Join.Version == "":
		check.Detail += "; K3S_VERSION is not set: a node whose image brings no K3s installs the newest stable release"
	case kube.TooNew(c.Join.Version, v.Server):
		check.OK, check.Detail = false, fmt.Sprintf("K3S_VERSION is %s, and the server runs %s", c.Join.Version, v.Server)
	default:
		check.Detail += ", new nodes " + c.Join.Version
	}
	for _, name := range slices.Sorted(maps.Keys(v.Nodes)) {
		if check.OK && kube.TooNew(v.Nodes[name], v.Server) {
			check.OK, check.Detail = false, fmt.Sprintf("node %s runs %s, and the server %s: Kubernetes supports no kubelet that is newer than the server", name, v.Nodes[name], v.Server)
			fix += ", and replace the node"
		}
	}
	if !check.OK {
		check.Fix = fix
	}
	return check
}
