package main

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/internal/linktest"
)

// TestBinary: muster is the only binary that links the NATS server, scenarios and the
// simulated region, and it links no test machinery either.
func TestBinary(t *testing.T) {
	linktest.Binary{
		Own: []string{
			"partition", "partition/event", "partition/role", "partition/state", "partition/plan", "partition/partitionprom", "partition/report", "partition/reserve", "partition/internal/record", "partition/internal/xxh64",
			"defender", "defender/service", "defender/responder", "defender/connect", "defender/cassandra", "defender/sqlite",
			"tchart", "defender/uchart", "defender/spc", "defender/pca", "defender/attribute",
			"defender/strategy", "defender/webhook", "defender/analyze", "defender/classify", "defender/trace",
			"defender/collect", "defender/replay", "defender/ingest", "defender/internal/cells", "defender/export", "defender/gem", "defender/hsms", "defender/secs",
			"nodes", "nodes/connect", "nodes/daemon", "nodes/explain", "nodes/fit", "nodes/workers",
			"nodes/ec2", "nodes/ec2/event", "nodes/kube", "nodes/prom", "nodes/dynamo", "nodes/local",
			"nodes/backtest", "nodes/sim", "nodes/sim/awsapi", "nodes/sim/kubeapi", "nodes/sim/promapi", "nodes/sim/region",
			"broker", "broker/access", "broker/accounts", "broker/survey", "console", "console/chamberview", "console/deployed", "console/groupview", "setting",
			"local", "e2e", "e2e/audit",
			"internal/awsbody", "internal/command", "internal/command/broker", "internal/command/console", "internal/command/defender", "internal/command/doctor",
			"internal/command/nodes", "internal/command/nodes/backtest", "internal/command/nodes/simulate",
			"internal/command/partitions", "internal/command/up",
			"internal/lab", "internal/lab/instances", "internal/lab/machines", "internal/powercut",
			"internal/listen", "internal/misuse", "internal/plot", "internal/processor", "internal/quantity", "internal/secret", "internal/sqlitefile",
		},
		Modules: slices.Concat(
			linktest.CommandLine, linktest.NATS, linktest.SQLite, linktest.Cassandra, linktest.Metrics,
			linktest.PromQL, linktest.AWS, linktest.Kubernetes, linktest.Tables,
			[]string{ // as in muster-defender
				"gonum.org/v1/gonum", "github.com/santhosh-tekuri/jsonschema/v6",
			},
			[]string{ // the NATS server
				"github.com/nats-io/nats-server/v2", "github.com/nats-io/jwt/v2",
				"github.com/antithesishq/antithesis-sdk-go", "github.com/minio/highwayhash",
			},
			[]string{ // the generated clients of Kubernetes, behind the simulated one and in the lab
				"github.com/emicklei/go-restful/v3", "github.com/go-openapi/...", "github.com/google/gnostic-models",
				"go.yaml.in/yaml/v3", "gopkg.in/evanphx/json-patch.v4",
			},
			[]string{ // the engine of queries, behind the simulated Prometheus
				"github.com/edsrzf/mmap-go", "github.com/facette/natsort", "github.com/pmezard/go-difflib",
				"github.com/go-logr/stdr", "go.opentelemetry.io/...",
			},
			[]string{ // the profile that the load scenario reads
				"github.com/google/pprof",
			}),
		MaxMB: 128,
		Rig:   true,
	}.Test(t)
}
