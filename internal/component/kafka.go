package component

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Kafka is one node of Apache Kafka that is both broker and controller. Settings, such as "group.initial.rebalance.delay.ms=0",
// are added to its configuration, which is otherwise as Kafka sets it for a single node.
func Kafka(settings ...string) Component {
	return kafka(func(dir, work string) (invocation, error) {
		broker, controller, err := kafkaPorts()
		if err != nil {
			return invocation{}, err
		}
		return startKafka(dir, work, kafkaNodes{{broker, controller}}, 0, settings)
	})
}

// KafkaCluster returns the nodes of one cluster of Apache Kafka, each both broker and controller. Launch them at the same time: none
// is ready before a majority of the controllers runs. Settings are those of every node, as for Kafka.
func KafkaCluster(nodes int, settings ...string) ([]Component, error) {
	var all kafkaNodes
	for range nodes {
		broker, controller, err := kafkaPorts()
		if err != nil {
			return nil, fmt.Errorf("finding ports for Kafka: %w", err)
		}
		all = append(all, kafkaNode{broker, controller})
	}

	var components []Component
	for i := range all {
		components = append(components, kafka(func(dir, work string) (invocation, error) {
			return startKafka(dir, work, all, i, settings)
		}))
	}
	return components, nil
}

func kafka(start func(dir, work string) (invocation, error)) Component {
	return Component{Name: "Kafka", Version: kafkaVersion, key: "kafka", tools: []string{"mvn", "java"}, fetch: fetchKafka, start: start}
}

// kafkaPorts returns the ports of a node.
func kafkaPorts() (broker, controller int, err error) {
	if broker, err = FreePort(); err != nil {
		return 0, 0, err
	}
	controller, err = FreePort()
	return broker, controller, err
}

// fetchKafka fetches the broker with the Java client, and a logger for it: the distribution adds one, the artifact has none.
func fetchKafka(ctx context.Context, dir string) error {
	if err := unpack(dir, "kafka/log4j2.properties"); err != nil {
		return err
	}
	err := maven(ctx, dir, artifact{"org.apache.kafka", "kafka_2.13", kafkaVersion}, artifact{"org.apache.logging.log4j", "log4j-slf4j-impl", kafkaLog4jVersion})
	if err != nil {
		return err
	}
	sums, err := files.ReadFile("kafka/jars.sha256")
	if err != nil {
		return err
	}
	return verify(filepath.Join(dir, "lib"), string(sums))
}

// verify compares the files of a folder with a list, as sha256sum prints it: neither may have a file that the other lacks.
func verify(dir, sums string) error {
	want := map[string]string{}
	for line := range strings.Lines(sums) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		want[name] = sum
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		if got := hex.EncodeToString(sum[:]); got != want[e.Name()] {
			return fmt.Errorf("verifying %s: its SHA-256 is %s, not %q", e.Name(), got, want[e.Name()])
		}
		delete(want, e.Name())
	}
	for name := range want {
		return fmt.Errorf("verifying %s: it was not fetched", name)
	}
	return nil
}

// kafkaLib is the class path of broker and client.
func kafkaLib(dir string) string { return filepath.Join(dir, "lib", "*") }

func startKafka(dir, work string, nodes kafkaNodes, own int, settings []string) (invocation, error) {
	if err := os.MkdirAll(work, 0o755); err != nil {
		return invocation{}, err
	}
	file := filepath.Join(work, "server.properties")
	config := nodes.config(own, filepath.Join(work, "logs")) + strings.Join(settings, "\n") + "\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return invocation{}, err
	}

	logging := "-Dlog4j2.configurationFile=" + filepath.Join(dir, "log4j2.properties")
	format := []string{logging, "-cp", kafkaLib(dir), "kafka.tools.StorageTool", "format",
		// Any cluster ID will do: 16 bytes in base64.
		"--cluster-id", "TXVzdGVyTXVzdGVyTXVzdA", "--config", file}
	if len(nodes) == 1 {
		format = append(format, "--standalone")
	}
	if err := command(context.Background(), work, "java", format...); err != nil {
		return invocation{}, err
	}

	return invocation{
		program: "java",
		// The options of kafka-server-start.sh and kafka-run-class.sh, in bin of the distribution.
		args: []string{"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
			"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", logging, "-cp", kafkaLib(dir), "kafka.Kafka", file},
		dir: filepath.Dir(work), ready: regexp.MustCompile(`Kafka Server started`), addr: fmt.Sprintf("127.0.0.1:%d", nodes[own].broker),
		within: time.Minute,
	}, nil
}

// kafkaNode is the ports of a node.
type kafkaNode struct{ broker, controller int }

// kafkaNodes are the nodes of a cluster.
type kafkaNodes []kafkaNode

// quorum says where the controllers are: a single one is told where it finds itself, those of a cluster who votes.
func (n kafkaNodes) quorum() string {
	if len(n) == 1 {
		return fmt.Sprintf("controller.quorum.bootstrap.servers=127.0.0.1:%d", n[0].controller)
	}
	var voters []string
	for i, node := range n {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, node.controller))
	}
	return "controller.quorum.voters=" + strings.Join(voters, ",")
}

// config is config/server.properties of the distribution with folder and ports of our own, and with up to three copies of what
// Kafka keeps for itself. Topics are made by those who use them.
func (n kafkaNodes) config(own int, logs string) string {
	copies := min(len(n), 3)
	return fmt.Sprintf(`process.roles=broker,controller
node.id=%[4]d
%[5]s
listeners=PLAINTEXT://127.0.0.1:%[2]d,CONTROLLER://127.0.0.1:%[3]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[2]d
controller.listener.names=CONTROLLER
log.dirs=%[1]s
auto.create.topics.enable=false
offsets.topic.replication.factor=%[6]d
transaction.state.log.replication.factor=%[6]d
transaction.state.log.min.isr=%[7]d
share.coordinator.state.topic.replication.factor=%[6]d
share.coordinator.state.topic.min.isr=%[7]d
`, logs, n[own].broker, n[own].controller, own+1, n.quorum(), copies, (copies+2)/2)
}
