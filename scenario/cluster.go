package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/partition"
)

// Options say what Up and Run start. They are the flags of "muster up".
type Options struct {
	Defenders int           // at the beginning
	Chambers  int           //
	Slots     int           //
	Rate      int           // messages a second in the background
	Work      time.Duration // added to each context's processing
	Data      string        // directory of traces; empty: generated ones
	Seed      uint64        // of generated traces
	Processes bool          // defenders as processes
	Expect    bool          // the expected number of defenders is known to them
	Dir       string        // for everything that is kept; empty: a temporary one
	NATSPort  int           // 0: a free one
	HTTP      string        // address of metrics and status; empty: none
	Verbose   bool          // debug lines in the defenders' logs
	Case      string        // variant of a scenario
	Kills     int           // of scenario crash
	Out       io.Writer     // progress, timeline and table
}

// Validate returns every fault of the options, by the flags' names.
func (o Options) Validate() error {
	errs := []error{
		within("defenders", o.Defenders, 1, 150),
		within("chambers", o.Chambers, 1, maxChambers),
		within("slots", o.Slots, 1, maxSlots),
		within("rate", o.Rate, 0, maxRate),
		within("nats-port", o.NATSPort, 0, 65535),
		within("kills", o.Kills, 1, 1000),
	}
	if o.Work < 0 || o.Work > time.Hour {
		errs = append(errs, fmt.Errorf("--work is %v: give 0s to 1h", o.Work))
	}
	if o.Slots < o.Defenders {
		errs = append(errs, fmt.Errorf("--slots is %d for %d --defenders: give at least as many slots as defenders", o.Slots, o.Defenders))
	}
	return errors.Join(errs...)
}

// Bounds of what one machine is asked to do.
const (
	maxChambers = 100_000
	maxSlots    = 4096
	maxRate     = 100_000
)

func within(flag string, v, low, high int) error {
	if v < low || v > high {
		return fmt.Errorf("--%s is %d: give %d to %d", flag, v, low, high)
	}
	return nil
}

// cluster is everything on one machine: broker, store, defenders and the
// collector that feeds them.
type cluster struct {
	o         Options
	dir       string
	temporary bool
	storePath string

	server   *broker.Server
	conn     *nats.Conn
	store    *sqlite.Store
	view     *view
	source   Source
	chambers []defender.Chamber
	traffic  *traffic

	tell func(seen) // called for each event of a defender

	mu      sync.Mutex
	members []*member
	gone    map[string]int64 // by recorder file, when a killed one was gone
	started int
}

// startCluster starts everything but the defenders.
func startCluster(ctx context.Context, o Options, tell func(seen)) (*cluster, error) {
	c := &cluster{tell: tell, o: o, gone: map[string]int64{}, chambers: Chambers(o.Chambers)}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

func (c *cluster) start(ctx context.Context) error {
	if c.o.HTTP != "" {
		if err := c.serve(ctx, c.o.Out); err != nil {
			return err
		}
	}
	var err error
	if c.source, err = openSource(c.o); err != nil {
		return err
	}
	if err := c.makeDir(); err != nil {
		return err
	}
	if c.server, err = broker.Start(broker.Options{Dir: filepath.Join(c.dir, "nats"), Port: c.o.NATSPort, LogFile: filepath.Join(c.dir, "log", "nats.log")}); err != nil {
		return err
	}
	if c.conn, err = broker.Connect(c.server.URL(), "muster up"); err != nil {
		return err
	}
	c.storePath = filepath.Join(c.dir, "fdc.db")
	if c.store, err = sqlite.Open(ctx, sqlite.Config{Path: c.storePath}); err != nil {
		return err
	}
	if err := c.store.RegisterChambers(ctx, chamberInfos(c.chambers)); err != nil {
		return err
	}
	if err := defender.Provision(ctx, c.conn, defender.Partition(c.o.Slots)); err != nil {
		return err
	}
	if c.view, err = newView(ctx, c.conn, c.tell); err != nil {
		return err
	}
	collector, err := collect.New(c.store, c.conn)
	if err != nil {
		return err
	}
	c.traffic = newTraffic(collector, c.source, c.chambers)
	return nil
}

func openSource(o Options) (Source, error) {
	if o.Data != "" {
		return LoadTraces(o.Data)
	}
	return GenerateTraces(o.Seed)
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
		c.mu.Lock()
		at := c.started
		c.started++
		c.mu.Unlock()
		start := c.startLocal
		if c.o.Processes {
			start = c.startProcess
		}
		m, err := start(ctx, at)
		if err != nil {
			return added, err
		}
		c.mu.Lock()
		c.members = append(c.members, m)
		c.mu.Unlock()
		added = append(added, m)
	}
	return added, nil
}

// expect tells the defenders how many they should be, if that is to be known.
func (c *cluster) expect(ctx context.Context, n int) error {
	if !c.o.Expect {
		n = 0
	}
	return partition.SetExpected(ctx, c.conn, defender.Group, n)
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

// killMember kills a member and notes when it was gone.
func (c *cluster) killMember(m *member) time.Time {
	at := m.kill()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone[m.options.Record] = at.UnixNano()
	return at
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

// wait polls until ok, an error of a member, or the deadline.
func (c *cluster) wait(ctx context.Context, within time.Duration, what string, ok func() bool) error {
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
	for _, m := range c.running() {
		select {
		case <-m.done:
		case <-time.After(40 * time.Second):
			errs = append(errs, fmt.Errorf("%s did not leave in 40 s and was killed", m.name))
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
	if c.view != nil {
		c.view.close()
	}
	if c.conn != nil {
		c.conn.Close()
	}
	if c.store != nil {
		errs = append(errs, c.store.Close())
	}
	if c.server != nil {
		c.server.Stop()
	}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}
