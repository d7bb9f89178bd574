package e2e

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/internal/processor"
	"github.com/muster-dev/muster/partition/report"
)

const crowdName = "crowd"

// caseProfiles has the processes write CPU profiles below --dir.
const caseProfiles = "profiles"

// Targets of scenario crowd for 1,000 workers on two cores that do nothing else.
const (
	crowdStable  = 15 * time.Second // all of them, from the start of the first process
	crowdChanged = 5 * time.Second  // a tenth joined or left, or a twentieth was killed
	crowdIdle    = 0.5              // cores, for all workers and the NATS server
)

// What a crowd is made of.
const (
	crowdHost       = 50               // workers of a process
	crowdSlots      = 4                // for each worker, about
	crowdPerStream  = 512              // consumers of a stream, about
	crowdIdleFor    = 10 * time.Second // that CPU at rest is measured for
	crowdFew        = 10               // least that a tenth is taken of
	crowdLastsUntil = 3 * time.Minute  // until a step has failed
)

// smallCrowd gives the scenario a thousand workers, slots and streams for them, and messages
// that take no time.
func smallCrowd(o *Options, chosen func(flag string) bool) {
	suit(chosen, "defenders", &o.Defenders, 1000)
	slots := 64
	for slots < crowdSlots*o.Defenders {
		slots *= 2
	}
	suit(chosen, "slots", &o.Slots, slots)
	suit(chosen, "shards", &o.Shards, max(1, o.Slots/crowdPerStream))
	suit(chosen, "chambers", &o.Chambers, o.Slots)
	suit(chosen, "rate", &o.Rate, 100)
	suit(chosen, "work", &o.Work, 5*time.Millisecond)
}

// setCrowd sets what a crowd needs.
func setCrowd(o *Options) { o.Expect, o.PoolSize = true, 2*o.Defenders }

// MostDefenders is the largest number of defenders that anything but scenario crowd is known to
// hold with.
const MostDefenders = 150

// checkCrowd rejects groups that only scenario crowd is known to hold with, and ones that are
// too small for it.
func checkCrowd(name string, o Options) error {
	switch {
	case name == crowdName && o.Defenders < crowdFew:
		return misuse.Errorf("--defenders is %d: scenario %s has a tenth of them join: give %d or more", o.Defenders, crowdName, crowdFew)
	case name == crowdName && o.Accounts:
		return misuse.Errorf("--accounts: scenario %s has no accounts: leave it out", crowdName)
	case name != crowdName && o.Defenders > MostDefenders:
		return misuse.Errorf("--defenders is %d: more than %d only with scenario %s", o.Defenders, MostDefenders, crowdName)
	}
	return nil
}

// crowdRun is a run of scenario crowd.
type crowdRun struct {
	*session
	hosts    *hosts
	mapBytes *mapMeter
}

// crowd starts many workers, has some join, some leave and some be killed, and measures how
// long the group takes and what it uses at rest.
func crowd(ctx context.Context, s *session) error {
	c := &crowdRun{session: s, hosts: &hosts{settings: s.Stack.Defenders.Settings(), pool: s.o.PoolSize, work: s.o.Work,
		logs: filepath.Join(s.Dir, "log"), records: s.rig.records}}
	if s.o.Case == caseProfiles {
		stop, err := c.profile()
		if err != nil {
			return err
		}
		defer stop()
	}
	s.check.endings = c.hosts.endings
	defer c.hosts.close()

	meter, err := meterMap(ctx, s)
	if err != nil {
		return err
	}
	defer meter.stop()
	c.mapBytes = meter
	return c.run(ctx)
}

// profile has this process, with the NATS server, and those of the workers write CPU profiles.
func (c *crowdRun) profile() (stop func(), err error) {
	c.hosts.profiles = filepath.Join(c.Dir, "profile")
	if err := os.MkdirAll(c.hosts.profiles, 0o755); err != nil {
		return nil, fmt.Errorf("profiling: %w", err)
	}
	end, err := profileTo(filepath.Join(c.hosts.profiles, "server.pprof"))
	if err != nil {
		return nil, err
	}
	return func() {
		if err := end(); err != nil {
			c.Say("The profile of the NATS server is not complete: %v", err)
		}
	}, nil
}

func (c *crowdRun) run(ctx context.Context) error {
	steps := []func(context.Context) error{c.assemble, c.rest, c.load, c.join, c.leave, c.fail, c.finish}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// few is how many join and leave.
func (c *crowdRun) few() int { return max(1, c.o.Defenders/10) }

// perHost is how many workers a process has. That is a twentieth of all, and those of one
// process are killed at once.
func (c *crowdRun) perHost() int { return max(1, min(crowdHost, c.o.Defenders/20)) }

// start starts processes with n workers.
func (c *crowdRun) start(n int) error {
	for n > 0 {
		x, err := c.hosts.add(min(n, c.perHost()))
		if err != nil {
			return err
		}
		n -= x.workers
	}
	return nil
}

// stable waits until the workers that run share all slots, and returns how long that took.
func (c *crowdRun) stable(ctx context.Context, since time.Time, n int) (time.Duration, error) {
	what := fmt.Sprintf("%d workers STABLE", n)
	if err := c.await(ctx, what, func() bool { return c.View.Stable(n) }); err != nil {
		return 0, err
	}
	took := time.Since(since)
	c.Say("%s after %.1f s, assignment map version %d", what, took.Seconds(), c.View.Latest().Version)
	return took, nil
}

// await waits until ok, or a process of workers has failed.
func (c *crowdRun) await(ctx context.Context, what string, ok func() bool) error {
	var failed error
	err := c.Wait(ctx, crowdLastsUntil, what, func() bool {
		failed = c.hosts.failed()
		return failed != nil || ok()
	})
	if failed != nil {
		return failed
	}
	return err
}

// measured enters how long a step took, and what of the map the workers read in it.
func (c *crowdRun) measured(step, name string, took, target time.Duration) {
	writes, bytes := c.mapBytes.take()
	c.report.measure(name+"_s", seconds(took))
	c.report.measure(name+"_map_writes", writes)
	c.report.measure(name+"_map_bytes_read", bytes*uint64(c.hosts.workers()))
	c.report.timed(step+", s", fmt.Sprintf("under %.0f", target.Seconds()), took < target, "%.1f, %d writes of the map, %.1f MB read by all workers", took.Seconds(), writes,
		float64(bytes)*float64(c.hosts.workers())/1e6)
}

// assemble starts all workers.
func (c *crowdRun) assemble(ctx context.Context) error {
	n := c.o.Defenders
	if err := c.SetExpected(ctx, n); err != nil {
		return err
	}
	c.Say("Starting %d workers in processes of %d, %d slots in %d streams", n, c.perHost(), c.o.Slots, c.o.Shards)
	began := time.Now()
	if err := c.start(n); err != nil {
		return err
	}
	took, err := c.stable(ctx, began, n)
	if err != nil {
		return err
	}
	c.measured(fmt.Sprintf("%d workers STABLE", n), "stable", took, crowdStable)
	return nil
}

// rest measures what the group uses while no message is published and nothing changes.
func (c *crowdRun) rest(ctx context.Context) error {
	if err := pause(ctx, 3*time.Second); err != nil { // what follows a plan is over
		return err
	}
	here, before, err := c.used()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := pause(ctx, crowdIdleFor); err != nil {
		return err
	}
	hereAfter, after, err := c.used()
	if err != nil {
		return err
	}
	elapsed := time.Since(began).Seconds()

	var cores, bytes, messages float64
	perWorker := map[*host]float64{}
	for x, u := range after {
		used := (u.CPU - before[x].CPU).Seconds() / elapsed
		perWorker[x] = used / float64(x.workers)
		cores += used
		bytes += float64(u.Bytes-before[x].Bytes) / elapsed
		messages += float64(u.Messages-before[x].Messages) / elapsed
	}
	typical := slices.Sorted(maps.Values(perWorker))[len(perWorker)/2]
	leader := 0.0
	for x, used := range perWorker {
		leader = max(leader, (used-typical)*float64(x.workers))
	}
	broker := (hereAfter - here).Seconds() / elapsed

	c.report.measure("idle_workers_cores", thousandth(cores))
	c.report.measure("idle_leader_cores", thousandth(leader))
	c.report.measure("idle_broker_cores", thousandth(broker))
	c.report.measure("idle_bytes_per_s", math.Round(bytes))
	c.report.measure("idle_messages_per_s", math.Round(messages))
	c.report.timed("cores at rest", fmt.Sprintf("under %.1f", crowdIdle), cores+broker < crowdIdle,
		"%.2f: %.2f of all workers, of these %.2f of the leader, and %.2f of the NATS server with this process; workers get %.0f messages/s and %.0f KB/s",
		cores+broker, cores, leader, broker, messages, bytes/1e3)
	return nil
}

// used returns the CPU time of this process, in which the NATS server is, and what each
// process of workers has used.
func (c *crowdRun) used() (here time.Duration, all map[*host]workersUsage, err error) {
	all, err = c.hosts.usage()
	return processor.Time(), all, err
}

// thousandth rounds to three digits after the point.
func thousandth(v float64) float64 { return math.Round(v*1000) / 1000 }

// load has messages in all slots from here on.
func (c *crowdRun) load(ctx context.Context) error {
	if err := c.warmUp(ctx); err != nil {
		return err
	}
	c.Traffic.Rate.Store(int64(c.o.Rate))
	return nil
}

// join has a tenth join, in processes of their own.
func (c *crowdRun) join(ctx context.Context) error {
	n, to := c.few(), c.o.Defenders+c.few()
	if err := c.SetExpected(ctx, to); err != nil {
		return err
	}
	c.mapBytes.take()
	c.Say("%d workers join", n)
	began := time.Now()
	if err := c.start(n); err != nil {
		return err
	}
	took, err := c.stable(ctx, began, to)
	if err != nil {
		return err
	}
	c.measured(fmt.Sprintf("%d more STABLE", n), "join", took, crowdChanged)
	return nil
}

// leave has as many leave as have joined.
func (c *crowdRun) leave(ctx context.Context) error {
	n, to := c.few(), c.o.Defenders
	if err := c.SetExpected(ctx, to); err != nil {
		return err
	}
	c.mapBytes.take()
	c.Say("%d workers leave", n)
	began := time.Now()
	var leaving []*host
	for left := n; left > 0; {
		x := c.hosts.all[len(c.hosts.all)-1-len(leaving)]
		leaving = append(leaving, x)
		left -= x.workers
		if err := x.leave(); err != nil {
			return err
		}
	}
	took, err := c.stable(ctx, began, to)
	if err != nil {
		return err
	}
	c.measured(fmt.Sprintf("%d left", n), "leave", took, crowdChanged)
	return gone(ctx, leaving, c.Patience(crowdLastsUntil))
}

// fail kills a process with a twentieth of the workers, each slot of which has a message.
func (c *crowdRun) fail(ctx context.Context) error {
	victim, ids, err := c.ordinary()
	if err != nil {
		return err
	}
	if err := c.busy(ctx, c.View.Latest(), ids, 1); err != nil {
		return err
	}
	c.mapBytes.take()
	c.Say("%d workers are killed at once", victim.workers)
	began := time.Now()
	victim.kill()
	to := c.o.Defenders - victim.workers
	if err := c.await(ctx, "their slots have owners", func() bool { return taken(c.View.Latest(), to) }); err != nil {
		return err
	}
	took := time.Since(began)
	c.Say("Every slot has an owner %.1f s after the kill", took.Seconds())
	c.measured(fmt.Sprintf("every slot owned after %d were killed", victim.workers), "kill", took, crowdChanged)
	return nil
}

// ordinary returns a process without the leader and its candidates, whose failure together is
// another scenario's, and the stable IDs of its workers.
func (c *crowdRun) ordinary() (x *host, ids []string, err error) {
	all, err := c.hosts.usage()
	if err != nil {
		return nil, nil, err
	}
	leading := []string{c.View.Latest().Leader.ID}
	for _, w := range c.View.Latest().Workers {
		if len(leading) <= candidates && w.ID != leading[0] {
			leading = append(leading, w.ID)
		}
	}
	for _, x := range c.hosts.running() {
		leads := slices.ContainsFunc(leading, func(id string) bool { return slices.Contains(all[x].IDs, id) })
		if !leads && x.workers == c.perHost() {
			return x, all[x].IDs, nil
		}
	}
	return nil, nil, fmt.Errorf("every process has the leader or one of its candidates, which are %v", leading)
}

// taken reports whether n workers, and no others, have all slots.
func taken(a *report.Map, n int) bool { return len(a.Workers) == n && a.Settled() }

// finish compares what was published with what was processed.
func (c *crowdRun) finish(ctx context.Context) error {
	if _, err := c.session.finish(ctx); err != nil {
		return err
	}
	if err := c.hosts.failed(); err != nil {
		return err
	}
	a := c.View.Latest()
	c.check.spreadSlots(a, c.o.Defenders-c.perHost())
	return nil
}

// mapMeter counts the writes of the assignment map, and how large they are. Each worker reads
// each of them.
type mapMeter struct {
	watch         jetstream.KeyWatcher
	writes, bytes atomic.Uint64
}

func meterMap(ctx context.Context, s *session) (*mapMeter, error) {
	const doing = "measuring the assignment map: %w"
	js, err := jetstream.New(s.Conn)
	if err != nil {
		return nil, fmt.Errorf(doing, err)
	}
	kv, err := js.KeyValue(ctx, defender.Group+"-assignments")
	if err != nil {
		return nil, fmt.Errorf(doing, err)
	}
	m := &mapMeter{}
	if m.watch, err = kv.Watch(ctx, "assignment-map", jetstream.IgnoreDeletes()); err != nil {
		return nil, fmt.Errorf(doing, err)
	}
	go m.run()
	return m, nil
}

func (m *mapMeter) run() {
	for e := range m.watch.Updates() {
		if e != nil {
			m.writes.Add(1)
			m.bytes.Add(uint64(len(e.Value())))
		}
	}
}

// take returns what was written since it was last asked.
func (m *mapMeter) take() (writes, bytes uint64) { return m.writes.Swap(0), m.bytes.Swap(0) }

func (m *mapMeter) stop() { _ = m.watch.Stop() }
