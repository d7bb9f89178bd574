package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/internal/lab/machines"
)

// Defenders are the defenders of a stack, in the order in which they were started.
type Defenders struct {
	settings  service.Options // of each, without its own names
	store     defender.Store  // of those in this process
	logs      string          // directory
	processes bool            // each is a process of its own
	hooks     Hooks

	mu      sync.Mutex
	all     []*Process
	started int
}

// Settings returns how each defender is run, without its own names.
func (d *Defenders) Settings() service.Options { return d.settings }

// Add starts n more defenders and returns them.
func (d *Defenders) Add(ctx context.Context, n int) ([]*Process, error) {
	var added []*Process
	for range n {
		p, err := d.launch(ctx, "", "")
		if err != nil {
			return added, err
		}
		added = append(added, p)
	}
	return added, nil
}

// launch starts a defender, in a pod on a node if they are named.
func (d *Defenders) launch(ctx context.Context, pod, node string) (*Process, error) {
	d.mu.Lock()
	at := d.started
	d.started++
	d.mu.Unlock()

	o := d.settings
	name := fmt.Sprintf("pod-%03d", at)
	o.Pod, o.Node, o.LogFile = cmp.Or(pod, name), node, d.logOf(name)
	start := d.startHere
	if d.processes {
		start = d.startProcess
	}
	p, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, p)
	return p, nil
}

// opened is a defender as production runs it.
type opened struct{ *service.Defender }

func (d opened) Gather() ([]*dto.MetricFamily, error) { return d.Registry.Gather() }

func openDefender(ctx context.Context, o service.Options, store defender.Store) (Defender, error) {
	d, err := service.Open(ctx, o, store)
	if err != nil {
		return nil, err
	}
	return opened{d}, nil
}

func (d *Defenders) startHere(ctx context.Context, o service.Options) (*Process, error) {
	open := openDefender
	if d.hooks.Open != nil {
		open = d.hooks.Open
	}
	opened, err := open(ctx, o, d.store)
	if err != nil {
		return nil, err
	}
	return startHere(o, opened), nil
}

func (d *Defenders) startProcess(ctx context.Context, o service.Options) (*Process, error) {
	l := Launch{Options: o, Command: []string{"rig", "defender"}}
	if d.hooks.Process != nil {
		if err := d.hooks.Process(ctx, &l); err != nil {
			return nil, err
		}
	}
	return startProcess(ctx, l)
}

// containedPort is where a defender in a container serves its metrics.
const containedPort = 8081

// contained returns how a defender is started in a container of any pod: what differs
// between pods, their kubelets fill in.
func (d *Defenders) contained(ctx context.Context) (Launch, error) {
	o := d.settings
	o.Pod, o.Node, o.LogFile = "$(POD_NAME)", "$(NODE_NAME)", d.logOf("$(POD_NAME)")
	l := Launch{Options: o, Command: []string{"rig", "defender"}, Serve: fmt.Sprint(":", containedPort)}
	if d.hooks.Process != nil {
		if err := d.hooks.Process(ctx, &l); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (d *Defenders) logOf(name string) string { return filepath.Join(d.logs, name+".log") }

// sigterm is the exit code of a process that SIGTERM has ended: it had no time to see to an
// orderly end, and nothing to hand off.
const sigterm = 128 + int(syscall.SIGTERM)

// adopt enters a defender that a real node's kubelet has started in a container.
func (d *Defenders) adopt(c *machines.Container) *Process {
	o := d.settings
	o.Pod, o.Node, o.LogFile = c.Pod, c.Node, d.logOf(c.Pod)
	p := &Process{Name: o.Pod, Options: o, Stop: c.Stop, Done: make(chan struct{})}
	p.Gather = func() ([]*dto.MetricFamily, error) {
		text, err := c.Metrics(context.Background())
		if err != nil {
			return nil, err
		}
		return readMetrics(bytes.NewReader(text))
	}
	p.kill = func() time.Time { // its machine is gone, and with it the container
		at := time.Now()
		c.Lost()
		<-p.Done
		return at
	}
	go func() {
		defer close(p.Done)
		<-c.Done()
		if code := c.Code(); code > 0 && code != sigterm {
			p.Err = fmt.Errorf("defender %s in a container: exit code %d: %s", p.Name, code, lastWords(o.LogFile))
		}
	}()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started++
	d.all = append(d.all, p)
	return p
}

// All returns all that were started.
func (d *Defenders) All() []*Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.all)
}

// Running returns those that have not ended.
func (d *Defenders) Running() []*Process {
	return slices.DeleteFunc(d.All(), (*Process).Ended)
}

// Failed returns the error of the first defender that ended unasked.
func (d *Defenders) Failed() error {
	for _, p := range d.All() {
		if err := p.failed(); err != nil {
			return err
		}
	}
	return nil
}

// processIDs returns those of the defenders that are processes of their own, by pod.
func (d *Defenders) processIDs() map[string]int {
	pids := map[string]int{}
	for _, p := range d.Running() {
		if p.OS != nil {
			pids[p.Options.Pod] = p.OS.Pid
		}
	}
	return pids
}

// stop lets all leave at once. Those that have not left in time are killed.
func (d *Defenders) stop(within time.Duration) error {
	for _, p := range d.Running() {
		p.Stop()
	}
	var errs []error
	for _, p := range d.Running() {
		select {
		case <-p.Done:
		case <-time.After(within):
			errs = append(errs, fmt.Errorf("%s did not leave in %v and was killed", p.Name, within))
			p.kill()
		}
	}
	return errors.Join(errs...)
}
