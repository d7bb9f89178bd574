package scenario

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
	Token     string        // allows actions on the page to whoever has it; empty: it is read-only
	Verbose   bool          // debug lines in the defenders' logs
	Case      string        // variant of a scenario
	// RetryAttempts is after how many attempts a message that fails is put aside; until
	// then it is parked, and others of its slot go on. 0: it is not parked.
	RetryAttempts int
	Kills         int       // of scenario crash; power cuts of scenario power-cut
	PowerCuts     bool      // scenario chaos cuts the servers' power, too
	Minutes       float64   // of faults in scenario chaos, of measuring in scenario load
	Points        int       // of each trace in scenario load; 0: as recorded or generated
	Lab           bool      // pods run on a real control plane
	Busy          bool      // the machine does other things, too: what is slow is told, and waited for longer
	Out           io.Writer // progress, timeline and table

	Previous string // muster binary of the version before, of scenario mixed-version

	provisionedByPrevious bool // the group's streams, buckets and records are the previous version's

	ownBroker bool  // the one server must be killed: with Processes it has its own
	onSite    bool  // the defenders run as pods on nodes of a site
	chaotic   bool  // the defenders' network can be cut, and they may die without being asked to
	onDisks   bool  // each server has a disk of its own, whose power can be cut
	maxStore  int64 // bytes that each NATS server may keep; 0: its default

	loadFor   time.Duration // that scenario load measures for, in place of Minutes
	boot      time.Duration // of a site's nodes, from launch to Ready, more than 5 s; 0: siteBoot
	launch    time.Duration // that the cloud takes to answer a launch, beside what it takes
	pendingUp time.Duration // that pods wait before up launches a node for them; 0: twice a boot
}

// powerCuts reports whether the servers' power can be cut.
func (o Options) powerCuts() bool { return o.onDisks || o.PowerCuts }

// resolve fills in what zero stands for.
func (o Options) resolve() Options {
	o.Servers, o.Replicas = max(o.Servers, 1), max(o.Replicas, 1)
	defaulted(&o.Shards, 1)
	if o.Minutes == 0 {
		o.Minutes = 10
	}
	return o
}

// Validate returns every fault of the options, by the flags' names.
func (o Options) Validate() error {
	o = o.resolve()
	errs := []error{
		misuse.Within("defenders", o.Defenders, 1, 150),
		misuse.Within("chambers", o.Chambers, 1, maxChambers),
		misuse.Within("slots", o.Slots, 1, maxSlots),
		misuse.Within("rate", o.Rate, 0, maxRate),
		misuse.Within("nats-port", o.NATSPort, 0, 65535),
		misuse.Within("kills", o.Kills, 1, 1000),
		misuse.Within("points", o.Points, 0, maxPoints),
		misuse.Within("retry-attempts", o.RetryAttempts, 0, maxAttempts),
		o.checkMinutes(),
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
	errs = append(errs, misuse.Shards(o.Shards, o.Slots))
	return errors.Join(errs...)
}

func defaulted(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

func (o Options) checkMinutes() error {
	if o.Minutes >= 0.5 && o.Minutes <= maxMinutes {
		return nil
	}
	return fmt.Errorf("--minutes is %v: give 0.5 to %d", o.Minutes, maxMinutes)
}

// Bounds of what one machine is asked to do.
const (
	maxChambers = 100_000
	maxSlots    = 4096
	maxShards   = 64
	maxRate     = 100_000
	maxMinutes  = 24 * 60
	maxPoints   = 4_000_000
	maxAttempts = 1_000_000
)

// cluster is everything on one machine: broker, store, defenders and the
// collector that feeds them.
type cluster struct {
	o         Options
	dir       string
	temporary bool
	storePath string

	brokers  *brokers
	users    *users     // of the servers; nil: they have none
	conn     *nats.Conn // may do everything: for what a scenario does to Muster, not for Muster
	roles    connections
	store    *sqlite.Store
	view     *view
	source   replay.Source
	chambers []defender.Chamber
	traffic  *traffic

	reads      defender.Store         // what defenders of this process are given; nil: store
	program    string                 // that defenders are processes of; empty: this one
	refit      func(*DefenderOptions) // changes how a defender runs, if set
	tell       func(seen)             // called for each event of a defender
	screen     *screen                // nil without a console
	stopScreen context.CancelFunc
	address    string               // of the console, "" without one
	site       atomic.Pointer[site] // where the defenders run as pods, if they do

	mu      sync.Mutex
	members []*member
	gone    map[string]int64 // by recorder file, when a killed one was gone
	started int
}

// startCluster starts everything but the defenders.
func startCluster(ctx context.Context, o Options, tell func(seen)) (*cluster, error) {
	o = o.resolve()
	c := &cluster{tell: tell, o: o, gone: map[string]int64{}, chambers: replay.Chambers(o.Chambers)}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context) error {
	if c.o.HTTP != "" {
		if err := c.serve(ctx); err != nil {
			return err
		}
	}
	var err error
	if c.source, err = replay.Open(c.o.Data, c.o.Seed); err != nil {
		return err
	}
	if err := c.makeDir(); err != nil {
		return err
	}
	if c.o.Accounts {
		c.users = newUsers(c.partition())
		if err := c.users.write(c.dir); err != nil {
			return err
		}
	}
	if c.brokers, err = startBrokers(ctx, c.o, c.dir, c.users); err != nil {
		return err
	}
	if c.conn, err = access.ConnectAs(c.brokers.url, "muster up", c.users.harness()); err != nil {
		return err
	}
	if err := c.brokers.ready(ctx, c.conn, c.o.Replicas); err != nil {
		return err
	}
	c.storePath = filepath.Join(c.dir, "fdc.db")
	if c.store, err = sqlite.Open(ctx, sqlite.Config{Path: c.storePath}); err != nil {
		return err
	}
	if err := replay.Register(ctx, c.store, c.chambers); err != nil {
		return err
	}
	operator, err := c.as(role.Operator)
	if err != nil {
		return err
	}
	provision := func(ctx context.Context) error { return defender.Provision(ctx, operator, c.partition()) }
	if c.o.provisionedByPrevious {
		provision = c.provisionByPrevious
	}
	if err := provision(ctx); err != nil {
		return err
	}
	if c.screen != nil {
		console, err := c.as(role.Console)
		if err != nil {
			return err
		}
		if err := c.screen.followAlarms(ctx, console); err != nil {
			return err
		}
	}
	viewer, err := c.as(role.Viewer)
	if err != nil {
		return err
	}
	v, err := newView(ctx, viewer, c.event)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.view = v
	c.mu.Unlock()
	publishes, err := c.as(role.Collector)
	if err != nil {
		return err
	}
	collector, err := collect.New(c.store, publishes)
	if err != nil {
		return err
	}
	collector.For(c.partition())
	c.traffic = newTraffic(collector, c.source, c.chambers)
	return c.tellAddress(ctx)
}

// seen returns the view of the defenders, nil before everything is started.
func (c *cluster) seen() *view {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view
}

// event passes on an event of a defender.
func (c *cluster) event(e seen) {
	c.tell(e)
	if c.screen != nil {
		c.screen.event(e)
	}
}

// partition returns the configuration of the defenders' group.
func (c *cluster) partition() partition.Config {
	p := defender.Partition(c.o.Slots)
	p.Shards, p.Storage.Replicas = c.o.Shards, c.o.Replicas
	p.Retry = service.Retry(c.o.RetryAttempts)
	return p
}

func (c *cluster) makeDir() error {
	c.dir = c.o.Dir
	if c.dir == "" {
		d, err := os.MkdirTemp("", "muster-")
		if err != nil {
			return fmt.Errorf("making a temporary directory: %w: name another with --dir", err)
		}
		c.dir, c.temporary = d, true
	}
	for _, sub := range []string{"record", "log"} {
		if err := os.MkdirAll(filepath.Join(c.dir, sub), 0o755); err != nil {
			return fmt.Errorf("making the directory for what is kept: %w: name one that can be written to with --dir", err)
		}
	}
	return nil
}

// add starts n more defenders and returns them.
func (c *cluster) add(ctx context.Context, n int) ([]*member, error) {
	var added []*member
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
func (c *cluster) launch(ctx context.Context, pod, node string) (*member, error) {
	c.mu.Lock()
	at := c.started
	c.started++
	c.mu.Unlock()
	o := c.memberOptions(at)
	o.Pod, o.Node, o.program = cmp.Or(pod, o.Pod), node, c.program
	if c.refit != nil {
		c.refit(&o)
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
	c.members = append(c.members, m)
	return m, nil
}

// expect tells the defenders how many they should be, if that is to be known.
func (c *cluster) expect(ctx context.Context, n int) error {
	if !c.o.Expect {
		n = 0
	}
	return c.setExpected(ctx, n)
}

// setExpected tells the defenders how many they should be.
func (c *cluster) setExpected(ctx context.Context, n int) error {
	nc, err := c.as(role.Operator)
	if err != nil {
		return err
	}
	return partition.Open(nc, defender.Group).Expect(ctx, n)
}

// running returns the members that have not ended.
func (c *cluster) running() []*member {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ms []*member
	for _, m := range c.members {
		select {
		case <-m.done:
		default:
			ms = append(ms, m)
		}
	}
	return ms
}

// processIDs returns those of the defenders that are processes of their own, by pod.
func (c *cluster) processIDs() map[string]int {
	pids := map[string]int{}
	for _, m := range c.running() {
		if m.process != nil {
			pids[m.options.Pod] = m.process.Pid
		}
	}
	return pids
}

// killMember kills a member and notes when it was gone.
func (c *cluster) killMember(m *member) time.Time {
	at := m.kill()
	c.died(m, at)
	return at
}

// died notes when a member was gone.
func (c *cluster) died(m *member, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[m.options.Record] = at.UnixNano()
}

// endings returns, by recorder file, when each killed incarnation was gone.
func (c *cluster) endings() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.gone)
}

// memberOf returns the running member with a stable ID.
func (c *cluster) memberOf(id string) *member {
	want := float64(-1)
	_, _ = fmt.Sscanf(id, defender.Group+"-%g", &want)
	for _, m := range c.running() {
		if f, err := m.gather(); err == nil && metric(f, "defender_stable_id") == want {
			return m
		}
	}
	return nil
}

// total adds up a metric over all members that run.
func (c *cluster) total(name string) float64 {
	var sum float64
	for _, m := range c.running() {
		if f, err := m.gather(); err == nil {
			sum += metric(f, name)
		}
	}
	return sum
}

// failed returns the first member's error that nobody asked for.
func (c *cluster) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		select {
		case <-m.done:
			if _, killed := c.gone[m.options.Record]; !killed && m.err != nil {
				return m.err
			}
		default:
		}
	}
	return nil
}

// runs reads what all members have processed.
func (c *cluster) runs() ([]run, error) {
	files, err := filepath.Glob(filepath.Join(c.dir, "record", "*"))
	if err != nil {
		return nil, err
	}
	var all []run
	for _, f := range files {
		rs, err := readRuns(f)
		if err != nil {
			return nil, err
		}
		all = append(all, rs...)
	}
	return all, nil
}

// patienceWhenBusy is by how much more is waited for what must come on a busy machine.
const patienceWhenBusy = 4

// patience is how long is waited for what comes in a time on a machine that does
// nothing else.
func (c *cluster) patience(within time.Duration) time.Duration {
	if c.o.Busy {
		return patienceWhenBusy * within
	}
	return within
}

// wait polls until ok, an error of a member, or the deadline.
func (c *cluster) wait(ctx context.Context, within time.Duration, what string, ok func() bool) error {
	within = c.patience(within)
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
			if err := c.failed(); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopDefenders lets all leave at once.
func (c *cluster) stopDefenders() error {
	for _, m := range c.running() {
		m.stop()
	}
	var errs []error
	within := c.patience(40 * time.Second)
	for _, m := range c.running() {
		select {
		case <-m.done:
		case <-time.After(within):
			errs = append(errs, fmt.Errorf("%s did not leave in %v and was killed", m.name, within))
			m.kill()
		}
	}
	return errors.Join(errs...)
}

// close stops everything and removes what is temporary.
func (c *cluster) close() error {
	var errs []error
	if c.traffic != nil {
		c.traffic.close()
	}
	errs = append(errs, c.stopDefenders())
	if c.stopScreen != nil {
		c.stopScreen()
	}
	if c.view != nil {
		c.view.close()
	}
	c.roles.close()
	if c.conn != nil {
		c.conn.Close()
	}
	if c.store != nil {
		errs = append(errs, c.store.Close())
	}
	if c.brokers != nil {
		errs = append(errs, c.brokers.stop())
	}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
