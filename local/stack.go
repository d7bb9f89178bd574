// Package local runs both planes on one machine, as muster up does: a broker, a store, a
// collector that publishes, a simulated region with the node plane, defenders in its pods
// or beside them, as goroutines or processes, and the console over everything.
package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/internal/powercut"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// Options say what Up and Run start. They are the flags of "muster up".
type Options struct {
	Defenders int           // at the beginning
	Chambers  int           //
	Slots     int           //
	Shards    int           // streams that the slots are spread over; 0 is 1
	Rate      int           // messages a second in the background
	Work      time.Duration // added to each context's processing
	Data      string        // directory of traces; empty: generated ones
	Seed      uint64        // of generated traces
	Processes bool          // defenders as processes
	Expect    bool          // the expected number of defenders is known to them
	Dir       string        // for everything that is kept; empty: a temporary one
	NATSPort  int           // 0: a free one
	Accounts  bool          // the NATS servers have accounts, and each part only the permissions of its role
	Sync      broker.Sync   // when the NATS servers sync what they acknowledge to the disk
	Servers   int           // NATS servers: 1, or a cluster of 3 or 5; 0 is 1
	Replicas  int           // of streams and buckets; 0 is 1
	HTTP      string        // address of metrics and status; empty: none
	Token     string        // allows actions on the console to a client that sends it; empty: it is read-only
	Verbose   bool          // debug lines in the defenders' logs
	// RetryAttempts is after how many attempts a message that fails is dead-lettered; until
	// then it is queued, and others of its slot go on. 0: it is not queued.
	RetryAttempts int
	Lab           bool      // pods run on a real control plane
	Busy          bool      // the machine does other things, too: what is slow is told, and waited for longer
	Out           io.Writer // progress, timeline and table

	OwnBroker bool  // the one server must be killed: with Processes it has its own
	OnNodes   bool  // the defenders run as pods on nodes
	Chaotic   bool  // the defenders' network can be cut, and they may die without being asked to
	OnDisks   bool  // each server has a disk of its own, whose power can be cut
	MaxStore  int64 // bytes that each NATS server may keep; 0: its default
	// Ext4Data is what the file systems of these disks journal. Empty: all data under
	// several servers, as deploy/kubernetes/nats-ebs has it, and ext4's default under one.
	Ext4Data powercut.Journal

	boot      time.Duration // of a cluster's nodes, from launch to Ready, more than 5 s; 0: BootTime
	launch    time.Duration // that the cloud takes to answer a launch, beside what it takes
	pendingUp time.Duration // that pods wait before up launches a node for them; 0: twice a boot
}

// Resolve fills in what zero stands for.
func (o Options) Resolve() Options {
	o.Servers, o.Replicas = max(o.Servers, 1), max(o.Replicas, 1)
	defaulted(&o.Shards, 1)
	return o
}

// Validate returns every fault of the options, by the flags' names.
func (o Options) Validate() error {
	o = o.Resolve()
	errs := []error{
		misuse.Within("defenders", o.Defenders, 1, 150),
		misuse.Within("chambers", o.Chambers, 1, maxChambers),
		misuse.Within("slots", o.Slots, 1, maxSlots),
		misuse.Within("rate", o.Rate, 0, maxRate),
		misuse.Within("nats-port", o.NATSPort, 0, 65535),
		misuse.Within("retry-attempts", o.RetryAttempts, 0, maxAttempts),
	}
	if o.Servers != 1 && o.Servers != 3 && o.Servers != 5 {
		errs = append(errs, fmt.Errorf("--servers is %d: give 1, 3 or 5", o.Servers))
	}
	if o.Replicas != 1 && o.Replicas != 3 && o.Replicas != 5 || o.Replicas > o.Servers {
		errs = append(errs, fmt.Errorf("--replicas is %d for %d --servers: give 1, 3 or 5, at most as many as servers", o.Replicas, o.Servers))
	}
	if o.Servers > 1 && o.NATSPort != 0 {
		errs = append(errs, fmt.Errorf("--nats-port is %d for %d --servers: each takes a free one, give 0", o.NATSPort, o.Servers))
	}
	if o.Work < 0 || o.Work > time.Hour {
		errs = append(errs, fmt.Errorf("--work is %v: give 0s to 1h", o.Work))
	}
	if o.Slots < o.Defenders {
		errs = append(errs, fmt.Errorf("--slots is %d for %d --defenders: give at least as many slots as defenders", o.Slots, o.Defenders))
	}
	if err := o.ext4Data().Check(); err != nil {
		errs = append(errs, fmt.Errorf("--ext4-data: %w", err))
	}
	errs = append(errs, misuse.Shards(o.Shards, o.Slots))
	return errors.Join(errs...)
}

// ext4Data is what the servers' file systems journal.
func (o Options) ext4Data() powercut.Journal {
	switch {
	case o.Ext4Data != "":
		return o.Ext4Data
	case o.Servers > 1:
		return powercut.JournaledData
	default:
		return powercut.OrderedData
	}
}

func defaulted(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

// Bounds of what one machine is asked to do.
const (
	maxChambers = 100_000
	maxSlots    = 4096
	maxShards   = 64
	maxRate     = 100_000
	maxAttempts = 1_000_000
)

// Stack is everything on one machine: broker, store, defenders and the
// collector that feeds them.
type Stack struct {
	o         Options
	Dir       string
	temporary bool
	StorePath string

	Brokers  *brokers
	users    *users     // of the servers; nil: they have none
	Conn     *nats.Conn // may do everything: for what a scenario does to Muster, not for Muster
	roles    connections
	Store    *sqlite.Store
	View     *view
	Source   replay.Source
	Chambers []defender.Chamber
	Traffic  *traffic

	Reads    defender.Store         // what defenders of this process are given; nil: store
	Program  string                 // that defenders are processes of; empty: this one
	Refit    func(*DefenderOptions) // changes how a defender runs, if set
	hooks    Hooks
	Timeline *Timeline
	OnEvent  atomic.Pointer[func(SeenEvent)] // called for each event of a defender, if set
	tally    tally                           // of processed messages; progress has it

	unsureMu   sync.Mutex
	unsure     pauses  // of defenders that can't confirm their lease
	screen     *screen // nil without a console
	stopScreen context.CancelFunc
	address    string                  // of the console, "" without one
	Cluster    atomic.Pointer[Cluster] // where the defenders run as pods, if they do

	mu        sync.Mutex
	processes []*Process
	gone      map[string]int64 // by recorder file, when a killed one was gone
	started   int
}

// Start starts everything but the defenders.
func Start(ctx context.Context, o Options, h Hooks) (*Stack, error) {
	o = o.Resolve()
	c := &Stack{hooks: h, o: o, Timeline: newTimeline(o.Out), gone: map[string]int64{}, Chambers: replay.Chambers(o.Chambers), unsure: pauses{every: pausesEvery}}
	err := c.start(ctx)
	if err == nil {
		// A directory that was used before may have messages that wait.
		c.tally.atStart, err = c.left(ctx)
	}
	if err != nil {
		return nil, unlessEnded(ctx, errors.Join(err, c.Close()))
	}
	return c, nil
}

// Hooks change how a cluster is started.
type Hooks struct {
	Provision func(context.Context, *Stack) error // in place of this version's own provisioning, if set
}

// unlessEnded marks what went wrong at the start as wrong usage: a port, a
// directory, a file that the options name.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &misuse.Error{Err: err}
}

func (c *Stack) start(ctx context.Context) error {
	if c.o.HTTP != "" {
		if err := c.serve(ctx); err != nil {
			return err
		}
	}
	var err error
	if c.Source, err = replay.Open(c.o.Data, c.o.Seed); err != nil {
		return err
	}
	if err := c.makeDir(); err != nil {
		return err
	}
	if c.o.Accounts {
		c.users = newUsers(c.Partition())
		if err := c.users.write(c.Dir); err != nil {
			return err
		}
	}
	if c.Brokers, err = startBrokers(ctx, c.o, c.Dir, c.users); err != nil {
		return err
	}
	if c.Conn, err = access.ConnectAs(c.Brokers.URL, "muster up", c.users.harness()); err != nil {
		return err
	}
	if err := c.Brokers.ready(ctx, c.Conn, c.o.Replicas); err != nil {
		return err
	}
	if err := c.openStore(ctx); err != nil {
		return err
	}

	operator, err := c.As(role.Operator)
	if err != nil {
		return err
	}
	provision := func(ctx context.Context) error { return defender.Provision(ctx, operator, c.Partition()) }
	if c.hooks.Provision != nil {
		provision = func(ctx context.Context) error { return c.hooks.Provision(ctx, c) }
	}
	if err := provision(ctx); err != nil {
		return err
	}
	if c.screen != nil {
		console, err := c.As(role.Console)
		if err != nil {
			return err
		}
		if err := c.screen.followAlarms(ctx, console); err != nil {
			return err
		}
	}

	if err := c.openView(ctx); err != nil {
		return err
	}
	if err := c.openTraffic(); err != nil {
		return err
	}
	return c.tellAddress(ctx)
}

// openStore opens the results' store, and registers the chambers in it.
func (c *Stack) openStore(ctx context.Context) error {
	c.StorePath = filepath.Join(c.Dir, "fdc.db")
	var err error
	if c.Store, err = sqlite.Open(ctx, sqlite.Config{Path: c.StorePath}); err != nil {
		return err
	}
	return replay.Register(ctx, c.Store, c.Chambers)
}

// openView begins to look at what the defenders do.
func (c *Stack) openView(ctx context.Context) error {
	viewer, err := c.As(role.Viewer)
	if err != nil {
		return err
	}
	v, err := newView(ctx, viewer, c.event)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.View = v
	c.mu.Unlock()
	return nil
}

// openTraffic begins to publish, at a rate of zero.
func (c *Stack) openTraffic() error {
	publishes, err := c.As(role.Collector)
	if err != nil {
		return err
	}
	collector, err := collect.New(c.Store, publishes)
	if err != nil {
		return err
	}
	collector.For(c.Partition())
	c.Traffic = newTraffic(collector, c.Source, c.Chambers)
	return nil
}

// seen returns the view of the defenders, nil before everything is started.
func (c *Stack) seen() *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.View
}

// event passes on an event of a defender.
func (c *Stack) event(e SeenEvent) {
	c.tellEvent(e)
	if c.screen != nil {
		c.screen.event(e)
	}
}

// Partition returns the configuration of the defenders' group.
func (c *Stack) Partition() partition.Config {
	p := defender.Partition(c.o.Slots)
	p.Shards, p.Storage.Replicas = c.o.Shards, c.o.Replicas
	p.Retry = service.Retry(c.o.RetryAttempts)
	return p
}

func (c *Stack) makeDir() error {
	c.Dir = c.o.Dir
	if c.Dir == "" {
		d, err := os.MkdirTemp("", "muster-")
		if err != nil {
			return fmt.Errorf("making a temporary directory: %w: name another with --dir", err)
		}
		c.Dir, c.temporary = d, true
	}
	for _, sub := range []string{"record", "log"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, sub), 0o755); err != nil {
			return fmt.Errorf("making the directory for what is kept: %w: name one that can be written to with --dir", err)
		}
	}
	return nil
}

// Add starts n more defenders and returns them.
func (c *Stack) Add(ctx context.Context, n int) ([]*Process, error) {
	var added []*Process
	for range n {
		m, err := c.launch(ctx, "", "")
		if err != nil {
			return added, err
		}
		added = append(added, m)
	}
	return added, nil
}

// launch starts a defender, in a pod on a node if they are named.
func (c *Stack) launch(ctx context.Context, pod, node string) (*Process, error) {
	c.mu.Lock()
	at := c.started
	c.started++
	c.mu.Unlock()
	o := c.DefenderOptions(at)
	o.Pod, o.Node, o.Program = cmp.Or(pod, o.Pod), node, c.Program
	if c.Refit != nil {
		c.Refit(&o)
	}
	start := c.startLocal
	if c.o.Processes {
		start = c.startProcess
	}
	m, err := start(ctx, o)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = append(c.processes, m)
	return m, nil
}

// Expect tells the defenders how many they should be, if that is to be known.
func (c *Stack) Expect(ctx context.Context, n int) error {
	if !c.o.Expect {
		n = 0
	}
	return c.SetExpected(ctx, n)
}

// SetExpected tells the defenders how many they should be.
func (c *Stack) SetExpected(ctx context.Context, n int) error {
	nc, err := c.As(role.Operator)
	if err != nil {
		return err
	}
	return partition.Open(nc, defender.Group).Expect(ctx, n)
}

// Running returns the members that have not ended.
func (c *Stack) Running() []*Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ms []*Process
	for _, m := range c.processes {
		select {
		case <-m.Done:
		default:
			ms = append(ms, m)
		}
	}
	return ms
}

// processIDs returns those of the defenders that are processes of their own, by pod.
func (c *Stack) processIDs() map[string]int {
	pids := map[string]int{}
	for _, m := range c.Running() {
		if m.OS != nil {
			pids[m.Options.Pod] = m.OS.Pid
		}
	}
	return pids
}

// Kill kills a defender and notes when it was gone.
func (c *Stack) Kill(m *Process) time.Time {
	at := m.kill()
	c.Died(m, at)
	return at
}

// Died notes when a defender was gone.
func (c *Stack) Died(m *Process, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[m.Options.Record] = at.UnixNano()
}

// Endings returns, by recorder file, when each killed incarnation was gone.
func (c *Stack) Endings() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.gone)
}

// ProcessOf returns the running defender with a stable ID.
func (c *Stack) ProcessOf(id string) *Process {
	want := float64(-1)
	_, _ = fmt.Sscanf(id, defender.Group+"-%g", &want)
	for _, m := range c.Running() {
		if f, err := m.Gather(); err == nil && Metric(f, "defender_stable_id") == want {
			return m
		}
	}
	return nil
}

// Total adds up a metric over all members that run.
func (c *Stack) Total(name string) float64 {
	var sum float64
	for _, m := range c.Running() {
		if f, err := m.Gather(); err == nil {
			sum += Metric(f, name)
		}
	}
	return sum
}

// Failed returns the error of the first defender that ended unasked.
func (c *Stack) Failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.processes {
		select {
		case <-m.Done:
			if _, killed := c.gone[m.Options.Record]; !killed && m.Err != nil {
				return m.Err
			}
		default:
		}
	}
	return nil
}

// patienceWhenBusy is by how much more is waited for what must come on a busy machine.
const patienceWhenBusy = 4

// Patience is how long is waited for what comes in a time on a machine that does
// nothing else.
func (c *Stack) Patience(within time.Duration) time.Duration {
	if c.o.Busy {
		return patienceWhenBusy * within
	}
	return within
}

// Wait polls until ok, an error of a defender, or the deadline.
func (c *Stack) Wait(ctx context.Context, within time.Duration, what string, ok func() bool) error {
	within = c.Patience(within)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("not within %v: %s", within, what)
			}
			return ctx.Err()
		case <-tick.C:
			if err := c.Failed(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopDefenders lets all leave at once.
func (c *Stack) stopDefenders() error {
	for _, m := range c.Running() {
		m.Stop()
	}
	var errs []error
	within := c.Patience(40 * time.Second)
	for _, m := range c.Running() {
		select {
		case <-m.Done:
		case <-time.After(within):
			errs = append(errs, fmt.Errorf("%s did not leave in %v and was killed", m.Name, within))
			m.kill()
		}
	}
	return errors.Join(errs...)
}

// Close stops everything and removes what is temporary.
func (c *Stack) Close() error {
	var errs []error
	if c.Traffic != nil {
		c.Traffic.close()
	}
	errs = append(errs, c.stopDefenders())
	if c.stopScreen != nil {
		c.stopScreen()
	}
	if c.View != nil {
		c.View.close()
	}
	c.roles.close()
	if c.Conn != nil {
		c.Conn.Close()
	}
	if c.Store != nil {
		errs = append(errs, c.Store.Close())
	}
	if c.Brokers != nil {
		errs = append(errs, c.Brokers.Stop())
	}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.Dir))
	}
	return errors.Join(errs...)
}
