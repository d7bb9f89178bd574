package main

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/linktest"
)

// TestBinary: a defender links neither the node plane nor a NATS server.
func TestBinary(t *testing.T) {
	linktest.Binary{
		Own: []string{
			"partition", "partition/event", "partition/report", "partition/role", "partition/state", "partition/plan", "partition/partitionprom", "partition/reserve", "partition/internal/record", "partition/internal/xxh64",
			"defender", "defender/service", "defender/responder", "defender/connect", "defender/cassandra", "defender/sqlite",
			"tchart", "defender/uchart", "defender/spc", "defender/pca", "defender/attribute",
			"defender/strategy", "defender/webhook", "defender/analyze", "defender/classify", "defender/trace",
			"defender/collect", "defender/replay", "defender/ingest", "defender/internal/cells", "defender/export", "defender/gem", "defender/hsms", "defender/secs",
			"broker/access", "broker/survey", "setting",
			"internal/command", "internal/command/defender", "internal/command/doctor", "internal/command/partitions",
			"internal/listen", "internal/misuse", "internal/plot", "internal/processor", "internal/quantity", "internal/secret", "internal/sqlitefile",
		},
		Modules: slices.Concat(linktest.CommandLine, linktest.NATS, linktest.SQLite, linktest.Cassandra, linktest.Metrics, linktest.YAML, linktest.Tables, []string{
			"gonum.org/v1/gonum",                       // principal components
			"github.com/santhosh-tekuri/jsonschema/v6", // of strategies
			"golang.org/x/text",
			"golang.org/x/sync",
		}),
		MaxMB: 39,
	}.Test(t)
}
