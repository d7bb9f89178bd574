package main

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/linktest"
)

// TestBinary: the node plane links neither the simulated region nor the defenders. It links
// partition, by which it has workers hand off their slots before a drain.
func TestBinary(t *testing.T) {
	linktest.Binary{
		Own: []string{
			"nodes", "nodes/connect", "nodes/daemon", "nodes/explain", "nodes/fit", "nodes/workers",
			"nodes/ec2", "nodes/ec2/event", "nodes/kube", "nodes/prom", "nodes/dynamo", "nodes/local",
			"partition", "partition/event", "partition/report", "partition/role", "partition/state", "partition/plan", "partition/reserve", "partition/internal/record", "partition/internal/xxh64", "broker/access", "console", "setting",
			"internal/awsbody", "internal/command", "internal/command/nodes",
			"internal/listen", "internal/misuse", "internal/quantity", "internal/secret", "internal/sqlitefile",
		},
		Modules: slices.Concat(linktest.CommandLine, linktest.NATS, linktest.SQLite, linktest.Metrics, linktest.PromQL, linktest.AWS, linktest.Kubernetes),
		MaxMB:   38,
	}.Test(t)
}
