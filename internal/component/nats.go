package component

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// natsVersion is that of the library in go.mod; a test compares them.
const natsVersion = "2.15.2"

// natsNode is where a server of a cluster listens.
type natsNode struct {
	name            string
	client, cluster int // ports
}

// nats is the stock NATS server, built from its module, as one of a cluster. It serves the same port after a restart.
func nats(own natsNode, all []natsNode) Component {
	return Component{
		Name: "NATS", Version: natsVersion, key: "nats-server", tools: []string{"go"},
		fetch: func(ctx context.Context, dir string) error {
			return goInstall(ctx, dir, "github.com/nats-io/nats-server/v2@v"+natsVersion)
		},
		start: func(dir, work string) (invocation, error) {
			var routes []string
			for _, n := range all {
				routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", n.cluster))
			}
			return invocation{
				program: filepath.Join(dir, "nats-server"),
				args: []string{"--addr", "127.0.0.1", "--port", strconv.Itoa(own.client), "--name", own.name, "--jetstream", "--store_dir", work,
					"--cluster_name", "muster", "--cluster", fmt.Sprintf("nats://127.0.0.1:%d", own.cluster), "--routes", strings.Join(routes, ",")},
				dir: filepath.Dir(work), ready: regexp.MustCompile(`Server is ready`), addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(own.client)), within: time.Minute,
			}, nil
		},
	}
}

// NATSCluster starts n NATS servers with JetStream as one cluster, each a process of its own with its own store, and stops them when the
// test has ended. Clients can connect at once; streams can be made when the servers have elected a leader, which broker.WaitReplicated
// waits for. The servers are called nats-1, nats-2 and so on, in their order.
func NATSCluster(t testing.TB, n int) []*Server {
	t.Helper()
	var all []natsNode
	for i := range n {
		node := natsNode{name: fmt.Sprintf("nats-%d", i+1)}
		for _, port := range []*int{&node.client, &node.cluster} {
			var err error
			if *port, err = FreePort(); err != nil {
				t.Fatal(err)
			}
		}
		all = append(all, node)
	}
	var servers []*Server
	for _, own := range all {
		servers = append(servers, nats(own, all).Start(t))
	}
	return servers
}

// goInstall builds a program of a module into a folder.
func goInstall(ctx context.Context, dir, program string) error {
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", program)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOBIN="+dir)
	if out, err := guarded(cmd); err != nil {
		return fmt.Errorf("go install %s: %w: %s", program, err, tail(string(out), 600))
	}
	return nil
}
