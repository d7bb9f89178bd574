package nodes_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// fault is what happens at one external call.
type fault byte

const (
	crashBefore fault = iota // the process dies before the request is sent
	crashAfter               // the process dies when the request has taken effect
	lostReply                // the request takes effect and its sender gets an error
	pauseBefore              // the process stops before it sends the request and goes on much later
	pauseAfter               // the process stops when the request has taken effect
	late                     // the request is sent in time and arrives much later
	faults
)

func (f fault) String() string {
	return [...]string{"crash before", "crash after", "lost reply", "pause before", "pause after", "late arrival"}[f]
}

// schedule is one way to run a scenario: faults at numbered calls of process A, and what process B does while A is stopped.
type schedule struct {
	faults map[int]fault
	pause  time.Duration // how long A is stopped before B starts
	b      int           // B is stopped at this call of its own until A has ended; 0: B runs through
	twin   bool          // B says that it is A, so it takes A's claims although A is alive: two daemons by mistake
}

func (s schedule) String() string {
	var at []int
	for k := range s.faults {
		at = append(at, k)
	}
	slices.Sort(at)
	out := ""
	for _, k := range at {
		out += fmt.Sprintf("%s at call %d; ", s.faults[k], k)
	}
	if s.pause > 0 || s.b > 0 {
		out += fmt.Sprintf("stopped for %s, B stopped at its call %d", s.pause, s.b)
	}
	if s.twin {
		out += ", B takes itself for A"
	}
	return cmp.Or(out, "no fault")
}

var (
	errReplyLost = errors.New("the reply was lost")
	errCrashed   = errors.New("crashed")
)

// ports are what a Reconciler is given; a broken variant puts something between.
type ports struct {
	nodes.Signals
	nodes.Cloud
	nodes.Cluster
	nodes.Store
	nodes.EventLog
	nodes.WorkerPlane
	nodes.EvictionRequester
	nodes.StatusReader
}

// variant breaks something between the reconciler and the simulator.
type variant func(s *stage, p ports) ports

// performance is one run of a scenario by a schedule.
type performance struct {
	stage    *stage
	plan     schedule
	broken   variant
	calls    int      // of process A so far
	names    []string // of A's calls
	cover    map[string]*[faults]int
	trace    uint64
	ids      int
	bCalls   int
	failures []string // panics that are no crash
}

// perform runs a scenario by a schedule. cover may be nil.
func perform(sc *scenario, plan schedule, v variant, cover map[string]*[faults]int) *performance {
	p := &performance{stage: newStage(sc), plan: plan, broken: v, cover: cover, trace: 14695981039346656037}
	p.stage.plan = plan
	type step struct {
		at time.Duration
		do func() bool // false: to be delivered again
	}
	var steps []step
	length := sc.length
	if n := len(plan.faults); n > 0 { // a crash costs a lease and a tick, or a back-off begins again
		length += time.Duration(6*n)*time.Minute + plan.pause
	}
	for _, d := range sc.events {
		var e nodes.InterruptionEvent
		deliver := func() bool {
			if p.stage.Instance(d.instance).ID == "" { // a fault kept it from being launched yet
				return true
			}
			if d.kind == reclaim {
				if e.ID == "" {
					p.stage.TakeAway(d.instance)
					e = nodes.InterruptionEvent{ID: "state", Kind: nodes.StateChange, InstanceID: d.instance, At: p.now(), State: nodes.StateShuttingDown}
				}
			} else if e.ID == "" {
				e = p.stage.Announce(d.kind, d.instance)
			}
			return p.run("A", func(ctx context.Context, r *nodes.Reconciler) error { return r.Interrupt(ctx, e) }) == nil
		}
		steps = append(steps, step{at: d.at, do: deliver})
		if d.twice {
			steps = append(steps, step{at: d.at + 40*time.Second, do: deliver})
		}
	}
	for at, t := range map[time.Duration]nodes.Transition{sc.paused: nodes.PauseScaling{Now: start.Add(sc.paused), Reason: "a look around"}, sc.resumed: nodes.ResumeScaling{}} {
		if at > 0 {
			steps = append(steps, step{at: at, do: func() bool {
				_, err := p.stage.Client("somebody", nil).Apply(context.Background(), t)
				return err == nil
			}})
		}
	}
	if sc.later > 0 {
		steps = append(steps, step{at: sc.later, do: func() bool { sc.arrive(p.stage); return true }})
	}
	tick := minutes(1)
	tries := map[int]int{}
	for tick < length || len(steps) > 0 {
		now := p.now().Sub(start)
		i := -1
		for k := range steps {
			if i < 0 || steps[k].at < steps[i].at {
				i = k
			}
		}
		if i >= 0 && steps[i].at <= tick {
			s := steps[i]
			p.stage.Advance(max(s.at-now, 0))
			if !s.do() && tries[i] < 5 {
				tries[i]++
				steps[i].at = p.now().Sub(start) + 5*time.Second
				continue
			}
			steps = slices.Delete(steps, i, i+1)
			tries[i] = 0
			continue
		}
		if tick < now { // the one before took longer
			tick = now.Truncate(time.Minute) + time.Minute
			continue
		}
		p.stage.Advance(tick - now)
		_ = p.run("A", tickOnce)
		tick += time.Minute
	}
	return p
}

func tickOnce(ctx context.Context, r *nodes.Reconciler) error {
	_, err := r.Tick(ctx)
	return err
}

func (p *performance) now() time.Time { return p.stage.Clock().Now() }

// run lets a new process do something. If it is stopped at a call, the other process does a tick meanwhile.
func (p *performance) run(actor string, do func(context.Context, *nodes.Reconciler) error) error {
	a := p.startProcess(actor, do)
	if !a.wait() {
		p.stage.Advance(p.plan.pause)
		b := p.startProcess("B", tickOnce)
		stopped := !b.wait()
		a.goOn()
		for !a.wait() {
			a.goOn()
		}
		if stopped {
			b.goOn()
			for !b.wait() {
				b.goOn()
			}
		}
	}
	return a.err
}

// process is a goroutine that runs only while the harness waits for it: one process at a time.
type process struct {
	p       *performance
	actor   string
	stopped chan bool // true: ended
	resume  chan struct{}
	err     error
}

func (p *performance) startProcess(actor string, do func(context.Context, *nodes.Reconciler) error) *process {
	pr := &process{p: p, actor: actor, stopped: make(chan bool), resume: make(chan struct{})}
	r := p.reconciler(pr)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				pr.err = errCrashed
				if err, ok := v.(error); !ok || !errors.Is(err, errCrashed) {
					p.failures = append(p.failures, fmt.Sprint(v))
				}
			}
			pr.stopped <- true
		}()
		pr.err = do(context.Background(), r)
	}()
	return pr
}

// wait runs the process until it ends, true, or is stopped at a call.
func (pr *process) wait() bool { return <-pr.stopped }

func (pr *process) goOn() { pr.resume <- struct{}{} }

func (pr *process) stop() {
	pr.stopped <- false
	<-pr.resume
}

func (p *performance) reconciler(pr *process) *nodes.Reconciler {
	c := p.stage.Client(pr.actor, pr)
	ports := ports{c, c, c, c, c, c, c, c}
	if p.broken != nil {
		ports = p.broken(p.stage, ports)
	}
	holder := pr.actor
	if p.plan.twin {
		holder = "A"
	}
	config := nodes.Config{Holder: holder, Policy: p.stage.policy, Signals: ports.Signals, Cloud: ports.Cloud, Cluster: ports.Cluster,
		Store: ports.Store, EventLog: ports.EventLog, WorkerPlane: ports.WorkerPlane, Clock: p.stage.Clock(), NewID: p.newID, Appraiser: p.stage.sc.appraiser}
	if p.stage.sc.priced {
		config.Pricer = c
	}
	if p.stage.sc.statuses {
		config.Statuses = ports.StatusReader
	}
	if p.stage.sc.responders {
		config.EvictionRequester = ports.EvictionRequester
	}
	if len(config.Policy.Pools) > 0 {
		f := poolCatalog()
		config.Sizer, config.Fitter, config.Screener, config.Templates = f, f, f, templatesOf(config.Policy)
	}
	r, err := nodes.New(config)
	if err != nil {
		panic(err)
	}
	return r
}

func (p *performance) newID() string {
	p.ids++
	return fmt.Sprintf("x%d", p.ids)
}

// Before is sim.Hook's.
func (pr *process) Before(call string) error {
	p := pr.p
	p.note(pr.actor, call)
	if pr.actor == "B" {
		p.bCalls++
		if p.bCalls == p.plan.b {
			pr.stop()
		}
		return nil
	}
	p.calls++
	p.names = append(p.names, call)
	f, ok := p.plan.faults[p.calls]
	if !ok {
		return nil
	}
	if p.cover != nil {
		if p.cover[call] == nil {
			p.cover[call] = new([faults]int)
		}
		p.cover[call][f]++
	}
	p.note(f.String(), "")
	switch f {
	case crashBefore:
		panic(errCrashed)
	case pauseBefore:
		pr.stop()
	case late:
		pr.stop()
		return sim.ErrLate
	}
	return nil
}

// After is sim.Hook's.
func (pr *process) After(call string, err error) error {
	p := pr.p
	if pr.actor == "B" {
		return err
	}
	if f, ok := p.plan.faults[p.calls]; ok {
		switch f {
		case crashAfter:
			panic(errCrashed)
		case lostReply:
			return errReplyLost
		case pauseAfter:
			if err == nil || !errors.Is(err, errReplyLost) {
				pr.stop()
			}
		}
	}
	if err != nil {
		p.note("error", call)
	}
	return err
}

func (p *performance) note(parts ...string) {
	h := fnv.New64a()
	for _, s := range parts {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	p.trace = p.trace*1099511628211 ^ h.Sum64()
}

func TestScenariosWithoutFaults(t *testing.T) {
	for _, sc := range everyScenario() {
		t.Run(sc.name, func(t *testing.T) {
			p := perform(&sc, schedule{}, nil, nil)
			for _, v := range check(p.stage) {
				t.Errorf("%s: %s", v.invariant, v.what)
			}
			for _, f := range p.failures {
				t.Error(f)
			}
			if t.Failed() {
				for _, e := range p.stage.Ledger() {
					t.Logf("%6.1fs %s %-14s %s %s", e.At.Sub(start).Seconds(), e.Actor, e.Kind, e.Instance, e.Detail)
				}
			}
		})
	}
}
