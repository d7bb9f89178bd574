package linktest

// Modules that come together, by what they are for.
var (
	// CommandLine is flags and subcommands.
	CommandLine = []string{"github.com/spf13/cobra", "github.com/spf13/pflag"}

	// NATS is the client.
	NATS = []string{
		"github.com/nats-io/nats.go", "github.com/nats-io/nkeys", "github.com/nats-io/nuid",
		"github.com/klauspost/compress", "golang.org/x/crypto",
	}

	// SQLite is without cgo, and so with a C library.
	SQLite = []string{
		"modernc.org/libc", "modernc.org/mathutil", "modernc.org/memory", "modernc.org/sqlite",
		"github.com/dustin/go-humanize", "github.com/google/uuid", "github.com/remyoudompheng/bigfft", "golang.org/x/sys",
	}

	// Cassandra is the driver.
	Cassandra = []string{"github.com/apache/cassandra-gocql-driver/v2", "gopkg.in/inf.v0"}

	// Tables are Parquet and Arrow, with the compressions that files have.
	Tables = []string{
		"github.com/parquet-go/parquet-go", "github.com/parquet-go/bitpack", "github.com/parquet-go/jsonlite",
		"github.com/apache/arrow-go/v18", "github.com/google/flatbuffers", "github.com/goccy/go-json",
		"github.com/andybalholm/brotli", "github.com/pierrec/lz4/v4", "github.com/klauspost/compress", "github.com/klauspost/cpuid/v2",
		"github.com/twpayne/go-geom", "github.com/zeebo/xxh3", "golang.org/x/exp",
	}

	// Metrics is what exports them.
	Metrics = []string{
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model",
		"github.com/prometheus/common", "github.com/prometheus/procfs",
		"github.com/beorn7/perks", "github.com/cespare/xxhash/v2", "github.com/munnerz/goautoneg",
		"golang.org/x/sys", "google.golang.org/protobuf",
	}

	// PromQL is the parser of queries.
	PromQL = []string{
		"github.com/prometheus/prometheus", "github.com/dennwc/varint", "github.com/grafana/regexp",
		"go.uber.org/atomic", "golang.org/x/text",
	}

	// AWS is the SDK with the services that the node plane calls, and those that the SDK gets
	// credentials from.
	AWS = []string{
		"github.com/aws/aws-sdk-go-v2", "github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/credentials",
		"github.com/aws/aws-sdk-go-v2/feature/ec2/imds", "github.com/aws/aws-sdk-go-v2/internal/...",
		"github.com/aws/aws-sdk-go-v2/service/internal/...", "github.com/aws/smithy-go",
		"github.com/aws/aws-sdk-go-v2/service/dynamodb", "github.com/aws/aws-sdk-go-v2/service/ec2",
		"github.com/aws/aws-sdk-go-v2/service/pricing", "github.com/aws/aws-sdk-go-v2/service/secretsmanager",
		"github.com/aws/aws-sdk-go-v2/service/sqs",
		"github.com/aws/aws-sdk-go-v2/service/ssm",
		"github.com/aws/aws-sdk-go-v2/service/signin", "github.com/aws/aws-sdk-go-v2/service/sso",
		"github.com/aws/aws-sdk-go-v2/service/ssooidc", "github.com/aws/aws-sdk-go-v2/service/sts",
	}

	// Kubernetes is the client for the groups that are asked for, and the scheduler's rules.
	Kubernetes = []string{
		"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/component-helpers", "k8s.io/klog/v2",
		"k8s.io/kube-openapi", "k8s.io/utils",
		"sigs.k8s.io/json", "sigs.k8s.io/randfill", "sigs.k8s.io/structured-merge-diff/v6", "sigs.k8s.io/yaml",
		"github.com/davecgh/go-spew", "github.com/fxamacker/cbor/v2", "github.com/go-logr/logr",
		"github.com/json-iterator/go", "github.com/modern-go/concurrent", "github.com/modern-go/reflect2",
		"github.com/munnerz/goautoneg", "github.com/spf13/pflag", "github.com/x448/float16",
		"go.yaml.in/yaml/v2", "golang.org/x/net", "golang.org/x/oauth2", "golang.org/x/sync",
		"golang.org/x/sys", "golang.org/x/term", "golang.org/x/text", "golang.org/x/time", "google.golang.org/protobuf",
		"gopkg.in/inf.v0",
	}

	// YAML reads and validates files of settings and strategies.
	YAML = []string{"go.yaml.in/yaml/v2", "sigs.k8s.io/yaml"}
)
