package backtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/sim"
)

// Config says what to run.
type Config struct {
	Trace  Trace
	Window Window // zero: the whole trace
	Policy nodes.Policy

	Catalog   fit.Catalog   // nil: fit.Shipped
	Zones     []string      // nil: a, b, c
	Interval  time.Duration // between two ticks; 0: 60 s
	Boot      time.Duration // from launch to Ready, on average; 0: 90 s
	Spread    float64       // boot times are drawn within this share of Boot around it, 0..1
	SpotShare float64       // share of node-hours that are bought as Spot, 0..1, for the cost; negative: as launched
	Seed      uint64        // of what is drawn: boot times
}

// Result is what a run came to. Times in seconds, money in USD. The first block says what was run, completely enough to run it
// again: with the same trace, policy and seed the result is the same to the last digit. The second is what came of it, by pods,
// nodes and actions; the third is for the chart alone.
type Result struct {
	Trace     string    `json:"trace"`
	From      float64   `json:"fromDay"` // of the trace
	To        float64   `json:"toDay"`
	Types     []string  `json:"instanceTypes"`
	Max       int       `json:"maxWorkers"`
	Seed      uint64    `json:"seed"`
	SpotShare float64   `json:"spotShare"`
	Sizing    string    `json:"sizing"`
	Settings  []Changed `json:"settings,omitempty"` // of a sweep

	Pods     Pods         `json:"pods"`
	Waiting  Waiting      `json:"waitingSeconds"`
	Nodes    Nodes        `json:"nodes"`
	Pools    []PoolResult `json:"pools,omitempty"` // of Nodes, by pool
	Actions  Actions      `json:"actions"`
	Ticks    int          `json:"ticks"`
	Errors   int          `json:"errors"` // of ticks
	FirstErr string       `json:"firstError,omitempty"`

	Series []Sample `json:"-"` // for the chart
	Needed []Step   `json:"-"` // nodes with perfect foresight, for the chart
}

// Changed is a setting of one run of a sweep.
type Changed struct {
	Setting string `json:"setting"` // environment name
	Value   string `json:"value"`
}

// Pods accounts for every pod of the window: Total is the sum of Ran, Pending, NeverFit and Withdrawn.
type Pods struct {
	Total     int    `json:"total"`
	Ran       int    `json:"ran"`       // were placed at least once: they have finished, run at the end, or were taken away while they ran
	Pending   int    `json:"pending"`   // waited at the end and some offered type could run them
	NeverFit  int    `json:"neverFit"`  // fit no offered type
	Withdrawn int    `json:"withdrawn"` // their owner took them away before they ran, as when the trace was recorded
	Carried   int    `json:"carried"`   // of Total: were there when the window begins; their waiting is not counted
	Evicted   int    `json:"evicted"`   // evictions by drains; such a pod starts from the beginning
	Displaced int    `json:"displaced"` // evicted pods that found no room within ten seconds
	GPU       int    `json:"gpu"`       // of Total: asked for GPUs, which were ignored
	Example   string `json:"neverFitExample,omitempty"`
}

// Waiting is how long the pods that ran waited from their creation until they were placed for the first time, in seconds.
type Waiting struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// Nodes is what was paid for. The control plane is not counted.
type Nodes struct {
	Hours     float64            `json:"hours"`          // from launch to termination
	Cost      float64            `json:"costUSD"`        // at SpotShare
	Most      int                `json:"most"`           // at a time
	ByType    map[string]float64 `json:"hoursByType"`    // node-hours
	Foresight float64            `json:"foresightHours"` // see Foresight
	BoundCost float64            `json:"foresightUSD"`   // see Foresight
}

// Actions is what the reconciler did.
type Actions struct {
	ScaleUps       int `json:"scaleUps"` // completed
	ScaleUpsFailed int `json:"scaleUpsFailed"`
	ScaleDowns     int `json:"scaleDowns"` // completed
	DownsFailed    int `json:"scaleDownsFailed"`
	Launched       int `json:"launched"`
	Terminated     int `json:"terminated"`
}

// Sample is how things stood at a tick.
type Sample struct {
	At      time.Duration // from the beginning of the window
	Nodes   int           // alive
	Pending int           // pods that some node could run and that have none
}

// Run runs a trace. The same Config gives the same Result.
func Run(ctx context.Context, c Config) (Result, error) {
	if c.Window == (Window{}) {
		c.Window = c.Trace.Whole()
	}
	if c.Zones == nil {
		c.Zones = []string{"a", "b", "c"}
	}
	if c.Catalog == nil {
		c.Catalog = fit.Shipped()
	}
	if c.Interval == 0 {
		c.Interval = time.Minute
	}
	if c.Boot == 0 {
		c.Boot = 90 * time.Second
	}
	if err := c.Check(c.Policy); err != nil {
		return Result{}, err
	}
	r := newRun(c)
	if r.pods, r.out.Pods.Carried = c.Trace.Cut(c.Window); len(r.pods) == 0 {
		return Result{}, errors.New("no pod of the trace is in the window: choose another one by --from and --to")
	}
	if err := r.play(ctx); err != nil {
		return Result{}, err
	}
	r.account()
	return r.out, nil
}

// Check reports what of a policy the trace or the table of instance types does not know.
func (c Config) Check(p nodes.Policy) error {
	ps := newPools(p)
	if _, err := c.Catalog.Only(ps.types()); err != nil {
		return err
	}
	return ps.check(c.Trace.Pods)
}

// run is one run in progress.
type run struct {
	c         Config
	fit       *fit.Fit
	types     map[string]fit.InstanceType
	pools     pools
	simulator *sim.Simulator
	start     time.Time
	pods      []Pod
	index     map[string]int // of a pod by its name in the simulator
	fate      []fate
	running   map[string]life // by instance
	out       Result
}

// displacedAfter is how long after its eviction a pod is still without a place if the others had no room for it. Its grace is 2 s.
const displacedAfter = 10 * time.Second

// fate is what became of a pod.
type fate struct {
	placed    bool
	waited    time.Duration
	withdrawn bool      // before it was placed
	evicted   time.Time // the last time; zero when it runs again
}

type life struct {
	typ    string
	market nodes.Market
	pool   string
	since  time.Time
}

func newRun(c Config) *run {
	r := &run{c: c, types: map[string]fit.InstanceType{}, pools: newPools(c.Policy), index: map[string]int{}, running: map[string]life{}}
	for _, name := range r.pools.types() {
		r.types[name] = c.Catalog[name]
	}
	p := c.Policy
	r.fit = fit.New(fit.Config{Catalog: c.Catalog, Zones: c.Zones, Labels: p.NodeLabels, Taints: p.NodeTaints, MaxPods: p.NodeMaxPods})
	day := func(d time.Duration) float64 { return d.Hours() / 24 }
	r.out = Result{Trace: c.Trace.Name, From: day(c.Window.From), To: day(c.Window.To), Types: r.pools.types(), Max: p.MaxWorkers, Seed: c.Seed,
		SpotShare: c.SpotShare, Sizing: string(p.Sizing), Nodes: Nodes{ByType: map[string]float64{}}}
	return r
}

// play lets the window pass.
func (r *run) play(ctx context.Context) error {
	r.makeWorld()
	n := 0
	client := r.simulator.Client("backtest", nil)
	reconciler, err := nodes.New(nodes.Config{
		Policy: r.c.Policy, Signals: client, Cloud: client, Cluster: client, Store: client, EventLog: nowhere{},
		Clock: r.simulator.Clock(), Templates: r.pools.templates(), Sizer: r.sizer(), Fitter: r.fit, Screener: r.fit, Appraiser: r.fit,
		NewID: func() string { n++; return fmt.Sprint(n) },
	})
	if err != nil {
		return err
	}
	r.foresee()
	clock := r.simulator.Clock()
	end := r.start.Add(r.c.Window.Length())
	for at := r.start; at.Before(end); at = at.Add(r.c.Interval) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if late := at.Sub(clock.Now()); late > 0 { // a tick that drains takes longer; the next one is not made up for
			r.simulator.Advance(late)
		} else if -late >= r.c.Interval {
			continue
		}
		if _, err := reconciler.Tick(ctx); err != nil {
			if r.out.Errors++; r.out.Errors == 1 {
				r.out.FirstErr = err.Error()
			}
		}
		r.out.Ticks++
		f := r.simulator.Fleet()
		r.out.Nodes.Most = max(r.out.Nodes.Most, f.Alive)
		r.out.Series = append(r.out.Series, Sample{clock.Now().Sub(r.start), f.Alive, f.Pending})
	}
	if left := end.Sub(clock.Now()); left > 0 {
		r.simulator.Advance(left)
	}
	for _, id := range slices.Sorted(maps.Keys(r.running)) { // in order, since sums of fractions depend on it
		r.ended(id, end)
	}
	return nil
}

func (r *run) sizer() nodes.Sizer {
	if r.c.Policy.Sizing == nodes.SizingFit {
		return r.fit
	}
	return nodes.PodsPerNode{}
}

// makeWorld builds the cluster as it is when the window begins, MIN_WORKERS nodes of the most wanted type, and lets the pods come.
func (r *run) makeWorld() {
	p := r.c.Policy
	first := r.pools.first()
	var workers []string
	for i := range p.MinWorkers {
		workers = append(workers, r.c.Zones[i%len(r.c.Zones)])
	}
	r.start = time.Unix(1730001600, 0).UTC()
	random := rand.New(rand.NewPCG(r.c.Seed, 0))
	r.simulator = sim.New(sim.Options{
		Policy: p, Start: r.start, Zones: r.c.Zones, Workers: workers, Visible: 2 * time.Second,
		WorkerType: first.InstanceTypes[0], WorkerPool: first.Pool, WorkerGets: joinsOf(first), Joins: r.pools.joins(),
		Capacity: func(typ string) nodes.Resources { return r.fit.Allocatable(r.types[typ]) },
		BootOf: func(string) time.Duration {
			return time.Duration(float64(r.c.Boot) * (1 + r.c.Spread*(random.Float64()*2-1)))
		},
		Watch: r.watch,
	})
	r.fate = make([]fate, len(r.pods))
	for i, pod := range r.pods {
		name := "trace/" + pod.Name
		if _, twice := r.index[name]; twice {
			name = fmt.Sprintf("%s-again-%d", name, i)
		}
		r.index[name] = i
		r.simulator.AddPodLater(pod.Created, r.pools.spec(name, pod), pod.Withdrawn)
	}
}

// watch takes part in what happens.
func (r *run) watch(e sim.Entry) {
	switch e.Kind {
	case sim.Joined: // also the initial workers, which were never launched
		if _, known := r.running[e.Instance]; !known && e.Instance != "i-001" {
			first, market := r.pools.first(), nodes.OnDemand
			if first.Spot {
				market = nodes.Spot
			}
			r.running[e.Instance] = life{first.InstanceTypes[0], market, first.Pool, r.start}
			r.pools.began(first.Pool)
		}
	case sim.Launched:
		o := e.Request.Offering
		r.running[e.Instance] = life{o.Type, o.Market, o.Pool, e.At}
		r.out.Actions.Launched++
		r.pools.began(o.Pool)
		r.pools.launched(o.Pool)
	case sim.Terminated:
		r.ended(e.Instance, e.At)
		r.out.Actions.Terminated++
	case sim.Placed:
		i := r.index[e.Detail]
		if f := &r.fate[i]; !f.placed {
			f.placed, f.waited = true, e.At.Sub(r.start)-r.pods[i].Created
		} else if !f.evicted.IsZero() {
			if e.At.Sub(f.evicted) > displacedAfter {
				r.out.Pods.Displaced++
			}
			f.evicted = time.Time{}
		}
	case sim.Evicted:
		r.out.Pods.Evicted++
		r.fate[r.index[e.Detail]].evicted = e.At
	case sim.Withdrawn:
		i := r.index[e.Detail]
		r.fate[i].withdrawn = !r.fate[i].placed
	case sim.Written:
		a := &r.out.Actions
		switch e.Detail {
		case (nodes.CompleteScaleUp{}).Name():
			a.ScaleUps++
		case (nodes.FailScaleUp{}).Name():
			a.ScaleUpsFailed++
		case (nodes.CompleteScaleDown{}).Name():
			a.ScaleDowns++
		case (nodes.FailScaleDown{}).Name():
			a.DownsFailed++
		}
	}
}

// ended books the life of an instance.
func (r *run) ended(id string, at time.Time) {
	l, ok := r.running[id]
	if !ok {
		return
	}
	delete(r.running, id)
	hours := at.Sub(l.since).Hours()
	r.out.Nodes.Hours += hours
	r.out.Nodes.ByType[l.typ] += hours
	usd := hours * r.price(r.types[l.typ], l.market)
	r.out.Nodes.Cost += usd
	r.pools.ended(l.pool, hours, usd)
}

// price returns what an hour costs: by the share of Spot, or as it was launched.
func (r *run) price(t fit.InstanceType, m nodes.Market) float64 {
	if s := r.c.SpotShare; s >= 0 {
		return s*t.Spot + (1-s)*t.OnDemand
	}
	return t.Price(m)
}

// account says what became of every pod.
func (r *run) account() {
	o := &r.out.Pods
	o.Total = len(r.pods)
	var waits []time.Duration
	for i, f := range r.fate {
		p := r.pods[i]
		if p.GPUs > 0 {
			o.GPU++
		}
		switch {
		case f.placed:
			o.Ran++
			if !p.carried {
				waits = append(waits, f.waited)
			}
			continue
		case f.withdrawn:
			o.Withdrawn++
			continue
		}
		if why := r.pools.never(r.fit, r.pools.asked(p)); why != "" {
			o.NeverFit++
			o.Example = p.Name + ": " + why
		} else {
			o.Pending++
		}
	}
	slices.Sort(waits)
	r.out.Pools = r.pools.results()
	r.out.Waiting = percentiles(waits)
}

// percentiles returns those of sorted times: the smallest that at least the given share is not above.
func percentiles(sorted []time.Duration) Waiting {
	n := len(sorted)
	if n == 0 {
		return Waiting{}
	}
	at := func(share float64) float64 {
		i := int(share*float64(n)+0.999999) - 1
		return sorted[min(max(i, 0), n-1)].Seconds()
	}
	sum := time.Duration(0)
	for _, w := range sorted {
		sum += w
	}
	return Waiting{P50: at(0.5), P90: at(0.9), P99: at(0.99), Max: at(1), Mean: sum.Seconds() / float64(n)}
}

// nowhere is an event log that keeps nothing: what a backtest reports it watches for itself.
type nowhere struct{}

func (nowhere) Append(context.Context, nodes.Event) error { return nil }

func (nowhere) Read(context.Context, nodes.Query) iter.Seq2[nodes.Event, error] {
	return func(func(nodes.Event, error) bool) {}
}

// DefaultTypes returns types to run a trace on when none are given: those of the c6i, m6i and r6i families from 16 to 128 vCPUs. First, and so
// the one that SIZING=pods-per-node launches, comes the cheapest that runs every pod that any of them runs; the others follow by price.
func DefaultTypes(c fit.Catalog, pods []Pod) []string {
	var types []fit.InstanceType
	for _, name := range c.Names() {
		family, size, _ := strings.Cut(name, ".")
		if slices.Contains([]string{"c6i", "m6i", "r6i"}, family) && slices.Contains([]string{"4xlarge", "8xlarge", "16xlarge", "32xlarge"}, size) {
			types = append(types, c[name])
		}
	}
	slices.SortStableFunc(types, func(a, b fit.InstanceType) int { return cmp.Compare(a.OnDemand, b.OnDemand) })
	f := fit.New(fit.Config{Catalog: c})
	first, most := 0, -1
	for i, t := range types {
		room := f.Allocatable(t)
		n := 0
		for _, p := range pods {
			if p.MilliCPU <= room.MilliCPU && p.Memory <= room.Memory {
				n++
			}
		}
		if n > most {
			first, most = i, n
		}
	}
	var out []string
	for _, t := range types {
		out = append(out, t.Name)
	}
	if len(out) > 0 {
		out = slices.Insert(slices.Delete(out, first, first+1), 0, types[first].Name)
	}
	return out
}

// foresee works out what somebody who knew the future would have needed: every pod runs from its creation, nodes come and go in no
// time, pods can be torn apart between nodes, and MIN_WORKERS are kept. At any moment that takes at least as many nodes as the pods'
// CPU or memory is multiples of the largest offered type's; and it costs at least what the fractions of nodes cost that cover both.
// Pods that no offered type runs, and those that never ran when recorded, ask for nothing.
//
// No settings can do better without making pods wait. They can if they do: waiting pods fill gaps.
func (r *run) foresee() {
	type change struct {
		at  time.Duration
		cpu int64
		mem int64
		n   int
	}
	var changes []change
	length := r.c.Window.Length()
	for _, p := range r.pods {
		if p.Withdrawn > 0 || r.pools.never(r.fit, r.pools.asked(p)) != "" {
			continue
		}
		changes = append(changes, change{p.Created, p.MilliCPU, p.Memory, 1}, change{min(p.end(), length), -p.MilliCPU, -p.Memory, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var types []fit.InstanceType
	var largest nodes.Resources
	cheapest := math.Inf(1)
	for _, name := range r.pools.types() {
		t := r.types[name]
		t.OnDemand = r.pools.least(t, r.price)
		types = append(types, t)
		a := r.fit.Allocatable(t)
		largest.MilliCPU, largest.Memory = max(largest.MilliCPU, a.MilliCPU), max(largest.Memory, a.Memory)
		cheapest = min(cheapest, t.OnDemand)
	}
	bound := r.fit.Bound(types)
	var cpu, mem int64
	pods := 0
	last := time.Duration(0)
	least := r.c.Policy.MinWorkers
	steps := []Step{{0, least}}
	need, cost := least, float64(least)*cheapest
	book := func(until time.Duration) {
		hours := (until - last).Hours()
		r.out.Nodes.Foresight += hours * float64(need)
		r.out.Nodes.BoundCost += hours * cost
		last = until
	}
	for i, c := range changes {
		cpu, mem, pods = cpu+c.cpu, mem+c.mem, pods+c.n
		if i+1 < len(changes) && changes[i+1].at == c.at {
			continue
		}
		book(c.at)
		need = max(least, int(math.Ceil(math.Max(float64(cpu)/float64(largest.MilliCPU), float64(mem)/float64(largest.Memory)))))
		cost = math.Max(float64(least)*cheapest, bound(nodes.Resources{MilliCPU: cpu, Memory: mem, Pods: pods}))
		steps = append(steps, Step{c.at, need})
	}
	book(length)
	r.out.Needed = steps
}
