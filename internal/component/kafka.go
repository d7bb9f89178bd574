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
	return Component{
		Name: "Kafka", Version: kafkaVersion, key: "kafka", tools: []string{"mvn", "java"},
		fetch: fetchKafka,
		start: func(dir, work string) (invocation, error) { return startKafka(dir, work, settings) },
	}
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

func startKafka(dir, work string, settings []string) (invocation, error) {
	broker, err := FreePort()
	if err != nil {
		return invocation{}, err
	}
	controller, err := FreePort()
	if err != nil {
		return invocation{}, err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return invocation{}, err
	}
	file := filepath.Join(work, "server.properties")
	config := kafkaConfig(filepath.Join(work, "logs"), broker, controller) + strings.Join(settings, "\n") + "\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return invocation{}, err
	}
	logging := "-Dlog4j2.configurationFile=" + filepath.Join(dir, "log4j2.properties")
	// Any cluster ID will do: 16 bytes in base64.
	err = command(context.Background(), work, "java", logging, "-cp", kafkaLib(dir), "kafka.tools.StorageTool", "format",
		"--standalone", "--cluster-id", "TXVzdGVyTXVzdGVyTXVzdA", "--config", file)
	if err != nil {
		return invocation{}, err
	}
	return invocation{
		program: "java",
		// The options of kafka-server-start.sh and kafka-run-class.sh, in bin of the distribution.
		args: []string{"-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
			"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", logging, "-cp", kafkaLib(dir), "kafka.Kafka", file},
		dir: filepath.Dir(work), ready: regexp.MustCompile(`Kafka Server started`), addr: fmt.Sprintf("127.0.0.1:%d", broker), within: time.Minute,
	}, nil
}

// kafkaConfig is config/server.properties of the distribution with folder and ports of our own. Topics are made by those who
// use them.
func kafkaConfig(logs string, broker, controller int) string {
	return fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:%[3]d
listeners=PLAINTEXT://127.0.0.1:%[2]d,CONTROLLER://127.0.0.1:%[3]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[2]d
controller.listener.names=CONTROLLER
log.dirs=%[1]s
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
`, logs, broker, controller)
}
