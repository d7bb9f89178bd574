package local

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
	Servers []*Broker
	URL     string
	Disks   *powercut.Rack // one for each server, if their power can be cut
}

// Broker is one server.
type Broker struct {
	Options broker.Options
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
	b := &brokers{URL: broker.URLs(all)}
	if o.OnDisks {
		if b.Disks, err = makeDisks(len(all), o.ext4Data()); err != nil {
			return nil, err
		}
	}
	for i, options := range all {
		if b.Disks != nil {
			options.Dir = filepath.Join(b.Disks.Dir(i), "nats")
		}
		options.NoAdvertise = o.Chaotic
		options.Sync, options.MaxStore, options.Accounts = o.Sync, o.MaxStore, known
		if known != "" {
			// The mapping is the account's.
		} else if from, to := (partition.Config{Name: defender.Group, Subject: defender.Subject, Shards: o.Shards}).Mapping(); to != "" {
			options.Mappings = map[string]string{from: to}
		}
		// One server is part of this process, as in production without a
		// cluster; only where it is to be killed it must have its own.
		b.Servers = append(b.Servers, &Broker{Options: options, process: o.Processes && (o.Servers > 1 || o.OwnBroker), accountsFile: accountsFile})
	}
	if err := b.Start(ctx); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// Start starts the servers that don't run, all at once.
func (b *brokers) Start(ctx context.Context) error {
	errs := make([]error, len(b.Servers))
	var wg sync.WaitGroup
	for i, n := range b.Servers {
		wg.Go(func() { errs[i] = n.start(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ready waits until the servers keep streams with this number of replicas.
func (b *brokers) ready(ctx context.Context, nc *nats.Conn, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return broker.WaitReplicated(ctx, nc, replicas)
}

func (b *brokers) Stop() error {
	errs := make([]error, len(b.Servers))
	var wg sync.WaitGroup
	for i, n := range b.Servers {
		wg.Go(func() { errs[i] = n.stop() })
	}
	wg.Wait()
	if b.Disks != nil {
		errs = append(errs, b.Disks.Close())
	}
	return errors.Join(errs...)
}

func makeDisks(n int, j powercut.Journal) (*powercut.Rack, error) {
	if err := powercut.Supported(); err != nil {
		return nil, err
	}
	return powercut.New(n, j)
}

// CutPower kills some servers, by their places, and cuts the power of their disks: what
// they have not synced is lost, but for what is kept of it. It returns when the last of
// them was dead.
func (b *brokers) CutPower(keep powercut.Keep, rng *rand.Rand, which ...int) (time.Time, error) {
	b.Kill(which...)
	dead := time.Now()
	return dead, b.Disks.CutKeeping(keep, rng, which...)
}

// Places returns the places of all servers.
func (b *brokers) Places() []int {
	all := make([]int, len(b.Servers))
	for i := range all {
		all[i] = i
	}
	return all
}

// Kill ends some servers at once, by their places.
func (b *brokers) Kill(which ...int) {
	var wg sync.WaitGroup
	for _, i := range which {
		wg.Go(b.Servers[i].Kill)
	}
	wg.Wait()
}

func (n *Broker) running() bool { return n.server != nil || n.cmd != nil }

func (n *Broker) start(ctx context.Context) error {
	if n.running() {
		return nil
	}
	if !n.process {
		s, err := broker.Start(n.Options)
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

func (n *Broker) startProcess(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting a broker process: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe, "rig", "broker", "--dir", n.Options.Dir, "--port", strconv.Itoa(n.Options.Port),
		"--log-file", n.Options.LogFile, "--sync", n.Options.Sync.String())
	if n.Options.ClusterPort != 0 {
		cmd.Args = append(cmd.Args, "--name", n.Options.Name, "--cluster-port", strconv.Itoa(n.Options.ClusterPort), "--routes", strings.Join(n.Options.Routes, ","))
	}
	if n.Options.Accounts != "" {
		cmd.Args = append(cmd.Args, "--accounts", n.accountsFile)
	}
	for from, to := range n.Options.Mappings {
		cmd.Args = append(cmd.Args, "--map", from+"="+to)
	}
	if n.Options.NoAdvertise {
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
	stderr, err := os.OpenFile(n.Options.LogFile+".stderr", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
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
		n.Kill()
		return ctx.Err()
	}
	n.cmd = nil
	return fmt.Errorf("starting broker process %s: it ended at once: %s", n.Options.Name, lastWords(n.Options.LogFile+".stderr", n.Options.LogFile))
}

// stop ends the server when its files are closed.
func (n *Broker) stop() error {
	switch {
	case n.server != nil:
		n.server.Stop()
		n.server = nil
	case n.cmd != nil:
		_ = n.stdin.Close()
		select {
		case <-n.done:
		case <-time.After(30 * time.Second):
			n.Kill()
			return fmt.Errorf("broker process %s did not end in 30 s and was killed", n.Options.Name)
		}
		n.cmd = nil
	}
	return nil
}

// Kill ends the server at once: with SIGKILL if it has a process of its own.
func (n *Broker) Kill() {
	if n.cmd == nil {
		_ = n.stop()
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.done
	n.cmd = nil
}
