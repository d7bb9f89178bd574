package scenario

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/powercut"
	"github.com/muster-dev/muster/partition"
)

// brokers are the NATS servers of a cluster, each in this process or in one of
// its own. A server that was ended can be started again, with its store and at
// its port.
type brokers struct {
	nodes []*brokerNode
	url   string
	disks *powercut.Rack // one for each server, if their power can be cut
}

// brokerNode is one server.
type brokerNode struct {
	options broker.Options
	process bool
	// accountsFile holds options.Accounts, if there are any.
	accountsFile string

	server *broker.Server // in this process
	cmd    *exec.Cmd      // or in its own
	stdin  io.Closer
	done   chan struct{}
}

// startBrokers starts all servers and waits until they answer.
func startBrokers(ctx context.Context, o Options, dir string, u *users) (*brokers, error) {
	all, err := broker.ClusterOptions(o.Servers, o.NATSPort, dir, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	known, err := u.config()
	if err != nil {
		return nil, err
	}
	accountsFile := filepath.Join(dir, "accounts.conf")
	if known != "" {
		if err := os.WriteFile(accountsFile, []byte(known), 0o600); err != nil {
			return nil, fmt.Errorf("writing the servers' accounts: %w: name another directory with --dir", err)
		}
	}
	b := &brokers{url: broker.URLs(all)}
	if o.powerCuts() {
		if b.disks, err = makeDisks(len(all)); err != nil {
			return nil, err
		}
	}
	for i, options := range all {
		if b.disks != nil {
			options.Dir = filepath.Join(b.disks.Dir(i), "nats")
		}
		options.NoAdvertise = o.chaotic
		options.Sync, options.MaxStore, options.Accounts = o.Sync, o.maxStore, known
		if known != "" {
			// The mapping is the account's.
		} else if from, to := (partition.Config{Name: defender.Group, Subject: defender.Subject, Shards: o.Shards}).Mapping(); to != "" {
			options.Mappings = map[string]string{from: to}
		}
		// One server is part of this process, as in production without a
		// cluster; only where it is to be killed it must have its own.
		b.nodes = append(b.nodes, &brokerNode{options: options, process: o.Processes && (o.Servers > 1 || o.ownBroker), accountsFile: accountsFile})
	}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, nil
}

// start starts the servers that don't run, all at once.
func (b *brokers) start(ctx context.Context) error {
	errs := make([]error, len(b.nodes))
	var wg sync.WaitGroup
	for i, n := range b.nodes {
		wg.Go(func() { errs[i] = n.start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ready waits until the servers keep streams with so many replicas.
func (b *brokers) ready(ctx context.Context, nc *nats.Conn, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return broker.WaitReplicated(ctx, nc, replicas)
}

func (b *brokers) stop() error {
	errs := make([]error, len(b.nodes))
	var wg sync.WaitGroup
	for i, n := range b.nodes {
		wg.Go(func() { errs[i] = n.stop() })
	}
	wg.Wait()
	if b.disks != nil {
		errs = append(errs, b.disks.Close())
	}
	return errors.Join(errs...)
}

func makeDisks(n int) (*powercut.Rack, error) {
	if err := powercut.Supported(); err != nil {
		return nil, err
	}
	return powercut.New(n)
}

// cutPower kills some servers, by their places, and cuts the power of their disks: what
// they have not synced is lost, but for what is kept of it. It returns when the last of
// them was dead.
func (b *brokers) cutPower(keep powercut.Keep, rng *rand.Rand, which ...int) (time.Time, error) {
	b.kill(which...)
	dead := time.Now()
	return dead, b.disks.CutKeeping(keep, rng, which...)
}

// places returns the places of all servers.
func (b *brokers) places() []int {
	all := make([]int, len(b.nodes))
	for i := range all {
		all[i] = i
	}
	return all
}

// kill ends some servers at once, by their places.
func (b *brokers) kill(which ...int) {
	var wg sync.WaitGroup
	for _, i := range which {
		wg.Go(b.nodes[i].kill)
	}
	wg.Wait()
}

func (n *brokerNode) running() bool { return n.server != nil || n.cmd != nil }

func (n *brokerNode) start(ctx context.Context) error {
	if n.running() {
		return nil
	}
	if !n.process {
		s, err := broker.Start(n.options)
		if err != nil {
			return err
		}
		n.server = s
		return nil
	}
	return n.startProcess(ctx)
}

// readyWords begin the line that a broker process writes when clients can connect.
const readyWords = "NATS server at "

func (n *brokerNode) startProcess(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting a broker process: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe, "rig", "broker", "--dir", n.options.Dir, "--port", strconv.Itoa(n.options.Port),
		"--log-file", n.options.LogFile, "--sync", n.options.Sync.String())
	if n.options.ClusterPort != 0 {
		cmd.Args = append(cmd.Args, "--name", n.options.Name, "--cluster-port", strconv.Itoa(n.options.ClusterPort), "--routes", strings.Join(n.options.Routes, ","))
	}
	if n.options.Accounts != "" {
		cmd.Args = append(cmd.Args, "--accounts", n.accountsFile)
	}
	for from, to := range n.options.Mappings {
		cmd.Args = append(cmd.Args, "--map", from+"="+to)
	}
	if n.options.NoAdvertise {
		cmd.Args = append(cmd.Args, "--no-advertise")
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("starting a broker process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("starting a broker process: %w", err)
	}
	stderr, err := os.OpenFile(n.options.LogFile+".stderr", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("starting a broker process: %w", err)
	}
	defer func() { _ = stderr.Close() }()
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting a broker process: %w", err)
	}
	n.cmd, n.stdin, n.done = cmd, in, make(chan struct{})
	up := make(chan bool, 1)
	go func() {
		defer close(n.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), readyWords) {
				up <- true
			}
		}
		_ = cmd.Wait()
		close(up)
	}()
	select {
	case ok := <-up:
		if ok {
			return nil
		}
	case <-ctx.Done():
		n.kill()
		return ctx.Err()
	}
	n.cmd = nil
	return fmt.Errorf("starting broker process %s: it ended at once: %s", n.options.Name, lastWords(n.options.LogFile+".stderr", n.options.LogFile))
}

// stop ends the server when its files are closed.
func (n *brokerNode) stop() error {
	switch {
	case n.server != nil:
		n.server.Stop()
		n.server = nil
	case n.cmd != nil:
		_ = n.stdin.Close()
		select {
		case <-n.done:
		case <-time.After(30 * time.Second):
			n.kill()
			return fmt.Errorf("broker process %s did not end in 30 s and was killed", n.options.Name)
		}
		n.cmd = nil
	}
	return nil
}

// kill ends the server at once: with SIGKILL if it has a process of its own.
func (n *brokerNode) kill() {
	if n.cmd == nil {
		_ = n.stop()
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.done
	n.cmd = nil
}
