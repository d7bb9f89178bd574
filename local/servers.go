package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/muster-dev/muster/partition"
)

// Servers are the NATS servers of a stack, each in this process or in one of its own. A
// server that was ended can be started again, with its store and at its port.
type Servers struct {
	URL string
	all []*server
}

// server is one NATS server.
type server struct {
	ServerOptions
	// accountsFile holds Accounts, if there are any.
	accountsFile string

	here  *broker.Server // in this process
	cmd   *exec.Cmd      // or in its own
	stdin io.Closer
	done  chan struct{}
}

// startServers starts all servers and waits until they answer.
func startServers(ctx context.Context, o Options, dir string, u *users, change func(place int, o *ServerOptions)) (*Servers, error) {
	each, err := broker.ClusterOptions(o.Servers, o.NATSPort, dir, filepath.Join(dir, "log"))
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

	s := &Servers{URL: broker.URLs(each)}
	for i, options := range each {
		options.Sync, options.Accounts = o.Sync, known
		// With accounts the mapping is the account's.
		if known == "" {
			options.Mappings = mappings(o.Shards)
		}
		// One server is part of this process, as in production without a cluster.
		n := &server{ServerOptions: ServerOptions{Options: options, OwnProcess: o.Processes && o.Servers > 1}, accountsFile: accountsFile}
		if change != nil {
			change(i, &n.ServerOptions)
		}
		s.all = append(s.all, n)
	}

	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// mappings has the servers put the slot into a message's subject, if the group needs that.
func mappings(shards int) map[string]string {
	group := partition.Config{Name: defender.Group, Subject: defender.Subject, Shards: shards}
	from, to := group.Mapping()
	if to == "" {
		return nil
	}
	return map[string]string{from: to}
}

// Start starts the servers that don't run, all at once.
func (s *Servers) Start(ctx context.Context) error {
	return s.each(func(n *server) error { return n.start(ctx) })
}

// Stop ends the servers when their files are closed.
func (s *Servers) Stop() error { return s.each((*server).stop) }

// Kill ends some servers at once, by their places.
func (s *Servers) Kill(which ...int) {
	var wg sync.WaitGroup
	for _, i := range which {
		wg.Go(s.all[i].kill)
	}
	wg.Wait()
}

// Places returns the places of all servers.
func (s *Servers) Places() []int {
	all := make([]int, len(s.all))
	for i := range all {
		all[i] = i
	}
	return all
}

// LogFiles returns the servers' logs, by their places.
func (s *Servers) LogFiles() []string {
	var files []string
	for _, n := range s.all {
		files = append(files, n.LogFile)
	}
	return files
}

// Dirs returns the directories of the servers' stores, by their places.
func (s *Servers) Dirs() []string {
	var dirs []string
	for _, n := range s.all {
		dirs = append(dirs, n.Dir)
	}
	return dirs
}

// ready waits until the servers keep streams with this number of replicas.
func (s *Servers) ready(ctx context.Context, nc *nats.Conn, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return broker.WaitReplicated(ctx, nc, replicas)
}

func (s *Servers) each(do func(*server) error) error {
	errs := make([]error, len(s.all))
	var wg sync.WaitGroup
	for i, n := range s.all {
		wg.Go(func() { errs[i] = do(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (n *server) running() bool { return n.here != nil || n.cmd != nil }

func (n *server) start(ctx context.Context) error {
	if n.running() {
		return nil
	}
	if !n.OwnProcess {
		s, err := broker.Start(n.Options)
		if err != nil {
			return err
		}
		n.here = s
		return nil
	}
	return n.startProcess(ctx)
}

// readyWords begin the line that a broker process writes when clients can connect.
const readyWords = "NATS server at "

func (n *server) startProcess(ctx context.Context) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting a broker process: %w", err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), exe, "rig", "broker", "--dir", n.Dir, "--port", strconv.Itoa(n.Port),
		"--log-file", n.LogFile, "--sync", n.Sync.String())
	if n.ClusterPort != 0 {
		cmd.Args = append(cmd.Args, "--name", n.Name, "--cluster-port", strconv.Itoa(n.ClusterPort), "--routes", strings.Join(n.Routes, ","))
	}
	if n.Accounts != "" {
		cmd.Args = append(cmd.Args, "--accounts", n.accountsFile)
	}
	for from, to := range n.Mappings {
		cmd.Args = append(cmd.Args, "--map", from+"="+to)
	}
	if n.NoAdvertise {
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
	stderr, err := os.OpenFile(n.LogFile+".stderr", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
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
	return fmt.Errorf("starting broker process %s: it ended at once: %s", n.Name, lastWords(n.LogFile+".stderr", n.LogFile))
}

// stop ends the server when its files are closed.
func (n *server) stop() error {
	switch {
	case n.here != nil:
		n.here.Stop()
		n.here = nil
	case n.cmd != nil:
		_ = n.stdin.Close()
		select {
		case <-n.done:
		case <-time.After(30 * time.Second):
			n.kill()
			return fmt.Errorf("broker process %s did not end in 30 s and was killed", n.Name)
		}
		n.cmd = nil
	}
	return nil
}

// kill ends the server at once: with SIGKILL if it has a process of its own.
func (n *server) kill() {
	if n.cmd == nil {
		_ = n.stop()
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.done
	n.cmd = nil
}
