package component

import (
	"context"
	"embed"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed axe/package.json axe/package-lock.json dynamodblocal/Loopback.java dynalite/package.json dynalite/package-lock.json dynalite/server.js mkdocs/requirements.txt moto/requirements.txt numpy/requirements.txt secsgem/requirements.txt tables/requirements.txt tennessee/requirements.txt cassandra/logback.xml kafka/log4j2.properties kafka/jars.sha256
var files embed.FS

// The versions that the tests were written against.
const (
	axeVersion           = "4.14.1"
	dynamoDBLocalVersion = "3.1.0"
	dynaliteVersion      = "4.0.0"
	mkdocsVersion        = "9.8.2" // of Material for MkDocs, with MkDocs 1.6.1
	motoVersion          = "5.2.5"
	numpyVersion         = "2.4.6" // with SciPy
	secsgemVersion       = "0.3.0"
	tablesVersion        = "26.0.1" // of PyArrow, with pandas, DuckDB and NATS' client
	tennesseeVersion     = "0.2.0"
	cassandraVersion     = "5.0.5"
	kafkaVersion         = "4.4.0"
	kafkaLog4jVersion    = "2.25.5" // of log4j-core, which this Kafka brings
)

// announced is the line by which the programs of this package say that they serve.
var announced = regexp.MustCompile(`component ready at (\S+)`)

// DynamoDBLocal is Amazon's own DynamoDB server for tests: the reference for conditions, expressions, limits and errors.
func DynamoDBLocal() Component {
	return Component{
		Name: "DynamoDB Local", Version: dynamoDBLocalVersion, key: "dynamodb-local", tools: []string{"mvn", "java"},
		fetch: func(ctx context.Context, dir string) error {
			if err := unpack(dir, "dynamodblocal/Loopback.java"); err != nil {
				return err
			}
			return maven(ctx, dir, artifact{"software.amazon.dynamodb", "DynamoDBLocal", dynamoDBLocalVersion})
		},
		start: func(dir, work string) (invocation, error) {
			lib := filepath.Join(dir, "lib")
			return invocation{
				program: "java",
				args: []string{"-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.library.path=" + lib,
					"-cp", filepath.Join(lib, "*"), filepath.Join(dir, "Loopback.java")},
				dir: filepath.Dir(work), ready: announced, within: time.Minute,
			}, nil
		},
	}
}

// Dynalite is an independent server of the DynamoDB API: a second opinion on conditions and expressions. It has no transactions and
// no time to live.
func Dynalite() Component {
	return Component{
		Name: "dynalite", Version: dynaliteVersion, key: "dynalite", tools: []string{"npm", "node"},
		fetch: func(ctx context.Context, dir string) error {
			if err := unpack(dir, "dynalite/package.json", "dynalite/package-lock.json", "dynalite/server.js"); err != nil {
				return err
			}
			return command(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		},
		start: func(dir, work string) (invocation, error) {
			return invocation{program: "node", args: []string{filepath.Join(dir, "server.js")}, dir: filepath.Dir(work), ready: announced, within: time.Minute}, nil
		},
	}
}

// Axe is axe-core, the accessibility rules, as node_modules/axe-core/axe.min.js of its folder. It can't be started: a browser runs it.
func Axe() Component {
	return Component{
		Name: "axe-core", Version: axeVersion, key: "axe", tools: []string{"npm"},
		fetch: func(ctx context.Context, dir string) error {
			if err := unpack(dir, "axe/package.json", "axe/package-lock.json"); err != nil {
				return err
			}
			return command(ctx, dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		},
	}
}

// Moto is a server of many AWS APIs, CloudFormation among them: a second opinion on templates, tags and queues. Its folder has a
// Python with cfn-lint as well.
func Moto() Component {
	return Component{
		Name: "moto", Version: motoVersion, key: "moto", tools: []string{"python3"},
		fetch: pythonWith("moto/requirements.txt"),
		start: func(dir, work string) (invocation, error) {
			return invocation{
				program: python(dir), args: []string{"-m", "moto.server", "-H", "127.0.0.1", "-p", "0"}, dir: filepath.Dir(work),
				env:   []string{"PYTHONUNBUFFERED=1"},
				ready: regexp.MustCompile(`Running on http://(\S+)`), within: time.Minute,
			}, nil
		},
	}
}

// MkDocs is a Python with Material for MkDocs, in python/bin of its folder: it makes the documentation's site. It can't be started.
func MkDocs() Component {
	return Component{
		Name: "Material for MkDocs", Version: mkdocsVersion, key: "mkdocs", tools: []string{"python3"},
		fetch: pythonWith("mkdocs/requirements.txt"),
	}
}

// NumPy is a Python with NumPy and SciPy, in python/bin of its folder, for checks that are written independently of our code. It can't
// be started.
func NumPy() Component {
	return Component{
		Name: "NumPy", Version: numpyVersion, key: "numpy", tools: []string{"python3"},
		fetch: pythonWith("numpy/requirements.txt"),
	}
}

// Tables is a Python with PyArrow, pandas, DuckDB and the client of NATS, in python/bin of its folder: what people read
// and write tables with, without our code. It can't be started.
func Tables() Component {
	return Component{
		Name: "PyArrow", Version: tablesVersion, key: "tables", tools: []string{"python3"},
		fetch: pythonWith("tables/requirements.txt"),
	}
}

// SECSGEM is a Python with the library secsgem, in python/bin of its folder: GEM equipment that is independent of our host. It
// can't be started.
func SECSGEM() Component {
	return Component{
		Name: "secsgem", Version: secsgemVersion, key: "secsgem", tools: []string{"python3"},
		fetch: pythonWith("secsgem/requirements.txt"),
	}
}

// pythonWith fetches the packages that a file requires into a virtual environment.
func pythonWith(requirements string) func(ctx context.Context, dir string) error {
	return func(ctx context.Context, dir string) error {
		if err := unpack(dir, requirements); err != nil {
			return err
		}
		if err := command(ctx, dir, "python3", "-m", "venv", "python"); err != nil {
			return err
		}
		return command(ctx, dir, python(dir), "-m", "pip", "install", "--quiet", "--no-input", "-r", "requirements.txt")
	}
}

// Tennessee is a Python with tep-studio, a simulator of the Tennessee Eastman process, in python/bin of its folder. It compiles the
// plant's model when it is fetched. It can't be started.
func Tennessee() Component {
	return Component{
		Name: "tep-studio", Version: tennesseeVersion, key: "tennessee", tools: []string{"python3", "cc"},
		fetch: func(ctx context.Context, dir string) error {
			if err := unpack(dir, "tennessee/requirements.txt"); err != nil {
				return err
			}
			if err := command(ctx, dir, "python3", "-m", "venv", "python"); err != nil {
				return err
			}
			return command(ctx, dir, python(dir), "-m", "pip", "install", "--quiet", "--no-input", "-r", "requirements.txt")
		},
	}
}

// Cassandra is one node of Apache Cassandra. It has ten seconds' timeouts, since tests share their machine.
func Cassandra() Component {
	return Component{
		Name: "Cassandra", Version: cassandraVersion, key: "cassandra", tools: []string{"mvn", "java"},
		fetch: func(ctx context.Context, dir string) error {
			if err := unpack(dir, "cassandra/logback.xml"); err != nil {
				return err
			}
			return maven(ctx, dir, artifact{"org.apache.cassandra", "cassandra-all", cassandraVersion})
		},
		start: startCassandra,
	}
}

func startCassandra(dir, work string) (invocation, error) {
	cql, err := FreePort()
	if err != nil {
		return invocation{}, err
	}
	storage, err := FreePort()
	if err != nil {
		return invocation{}, err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return invocation{}, err
	}
	file := filepath.Join(work, "cassandra.yaml")
	if err := os.WriteFile(file, []byte(cassandraConfig(work, cql, storage)), 0o600); err != nil {
		return invocation{}, err
	}
	args := []string{
		"-Xms256M", "-Xmx1024M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+HeapDumpOnOutOfMemoryError", "-Djdk.attach.allowAttachSelf=true",
		"-Dcassandra.config=file://" + file, "-Dcassandra.storagedir=" + work, "-Dlogback.configurationFile=" + filepath.Join(dir, "logback.xml"),
		"-Dcassandra-foreground=yes", "-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=100", "-Dcassandra.superuser_setup_delay_ms=0",
		"-Dio.netty.transport.estimateSizeOnSubmit=false",
	}
	for _, export := range []string{ // what Cassandra's own options for Java 17 open
		"java.base/jdk.internal.misc", "java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry", "java.rmi/sun.rmi.server",
		"java.rmi/sun.rmi.transport", "java.rmi/sun.rmi.transport.tcp", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
		"jdk.unsupported/sun.misc", "jdk.compiler/com.sun.tools.javac.file",
	} {
		args = append(args, "--add-exports", export+"=ALL-UNNAMED")
	}
	for _, open := range []string{
		"java.base/java.lang.module", "java.base/jdk.internal.loader", "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect", "java.base/jdk.internal.math",
		"java.base/jdk.internal.module", "java.base/jdk.internal.util.jar", "jdk.management/com.sun.management.internal", "java.base/sun.nio.ch",
		"java.base/java.io", "java.base/java.lang", "java.base/java.lang.reflect", "java.base/java.util", "java.base/java.util.concurrent",
		"java.base/java.util.concurrent.atomic", "java.base/java.nio", "java.base/java.net", "jdk.compiler/com.sun.tools.javac", "java.base/sun.nio.fs",
	} {
		args = append(args, "--add-opens", open+"=ALL-UNNAMED")
	}
	return invocation{
		program: "java", args: append(args, "-cp", filepath.Join(dir, "lib", "*"), "org.apache.cassandra.service.CassandraDaemon"),
		dir: filepath.Dir(work), ready: regexp.MustCompile(`Startup complete`), addr: fmt.Sprintf("127.0.0.1:%d", cql), within: 3 * time.Minute,
	}, nil
}

func cassandraConfig(work string, cql, storage int) string {
	return fmt.Sprintf(`cluster_name: muster
num_tokens: 4
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
listen_address: 127.0.0.1
rpc_address: 127.0.0.1
native_transport_port: %d
storage_port: %d
ssl_storage_port: %d
start_native_transport: true
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "127.0.0.1:%d"
data_file_directories: [%[5]q]
commitlog_directory: %[6]q
hints_directory: %[7]q
saved_caches_directory: %[8]q
cdc_raw_directory: %[9]q
# Every write is on disk before it is acknowledged, so that a killed server has lost nothing.
commitlog_sync: group
commitlog_sync_group_window: 2ms
commitlog_segment_size: 32MiB
commitlog_total_space: 256MiB
auto_snapshot: false
read_request_timeout: 10s
range_request_timeout: 10s
write_request_timeout: 10s
cas_contention_timeout: 10s
truncate_request_timeout: 60s
`, cql, storage, storage, storage, filepath.Join(work, "data"), filepath.Join(work, "commitlog"), filepath.Join(work, "hints"),
		filepath.Join(work, "saved_caches"), filepath.Join(work, "cdc"))
}

// FreePort returns a port that nobody uses now, for a program that can't be told to take any. It is below those that the system hands
// out, so that it is still free when the program gets to it.
func FreePort() (int, error) {
	var listen net.ListenConfig
	var last error
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		l, err := listen.Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
		last = err
	}
	return 0, last
}

// python is the interpreter of a virtual environment, called by its own path so that the folder may have been moved.
func python(dir string) string { return filepath.Join(dir, "python", "bin", "python") }

// unpack writes embedded files into a folder.
func unpack(dir string, names ...string) error {
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// artifact is a package of Maven Central.
type artifact struct{ group, name, version string }

// maven fetches artifacts with everything they need at run time into the folder lib. Each file must have the checksum that
// the registry states.
func maven(ctx context.Context, dir string, artifacts ...artifact) error {
	var dependencies strings.Builder
	for _, a := range artifacts {
		_, _ = fmt.Fprintf(&dependencies, "    <dependency><groupId>%s</groupId><artifactId>%s</artifactId><version>%s</version></dependency>\n", a.group, a.name, a.version)
	}
	pom := fmt.Sprintf(`<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>dev.muster</groupId><artifactId>component</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
%s  </dependencies>
</project>
`, &dependencies)
	if err := os.WriteFile(filepath.Join(dir, "pom.xml"), []byte(pom), 0o644); err != nil {
		return err
	}
	return command(ctx, dir, "mvn", "-q", "-B", "--strict-checksums", "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(dir, "lib"))
}
