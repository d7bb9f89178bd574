package sim

import (
	"cmp"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Options describe a simulation at its beginning. The zero value is a cluster of one server of the control plane on 2024-10-27, in
// zones a and b, whose new instances take 90 s to become Ready. Policy and Zones hold throughout, and so do Capacity, BootOf and Price,
// which are called with the simulator locked.
type Options struct {
	Policy  nodes.Policy  // whose windows the signals use
	Start   time.Time     // zero: 2024-10-27T04:00:00Z
	Latency time.Duration // of each call; 0: 20 ms
	Visible time.Duration // how long a new instance is not listed
	Boot    time.Duration // how long a new instance takes to become Ready; 0: 90 s
	Zones   []string      // one subnet each; nil: a, b
	Workers []string      // zones of the workers that are there, oldest first, hand-made

	WorkerType   string                              // of the workers that are there; "": t3.large
	WorkerHash   string                              // template hash of the workers that are there; "": they have none
	WorkerPool   string                              // that they were launched in; "": none
	WorkerPoolOf func(n int) string                  // that the n-th instance after the server was launched in, if by a person; nil: WorkerPool
	WorkerGets   Joins                               // what their user data gave them
	Capacity     func(typ string) nodes.Resources    // what a node of a type can be given; nil: 2 cores, 8 GiB, 20 pods
	BootOf       func(instance string) time.Duration // how long a new instance takes to become Ready; nil or 0: Boot

	// Price is what an hour of an instance type costs, in USD, On-Demand or, in a zone, as Spot; nil: nothing has a price.
	Price func(typ string, m nodes.Market, zone string) (usd float64, sold bool)

	// Joins is what the user data of a launch template, by its ID, gives a node; of other templates nothing. A Boot with labels or taints of
	// its own goes before it.
	Joins map[string]Joins

	// Watch, if it is not nil, is handed every entry when it happens, Placed and Finished ones among them, and the simulator keeps no
	// ledger and forgets instances an hour after their end, so that it can run for months. It is called with the simulator locked.
	Watch func(Entry)
}

// withDefaults returns the options with the values that the zero ones stand for.
func (o Options) withDefaults() Options {
	if o.Start.IsZero() {
		o.Start = time.Unix(1730001600, 0).UTC()
	}
	o.Boot = cmp.Or(o.Boot, 90*time.Second)
	o.Latency = cmp.Or(o.Latency, 20*time.Millisecond)
	if o.Zones == nil {
		o.Zones = []string{"a", "b"}
	}
	o.WorkerType = cmp.Or(o.WorkerType, "t3.large")
	if o.Capacity == nil {
		o.Capacity = func(string) nodes.Resources { return nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20} }
	}
	return o
}

// hardware returns what the options say about machines.
func (o Options) hardware() hardware {
	bootOf := func(string) time.Duration { return o.Boot }
	if o.BootOf != nil {
		bootOf = func(id string) time.Duration { return cmp.Or(o.BootOf(id), o.Boot) }
	}
	poolOf := o.WorkerPoolOf
	if poolOf == nil {
		poolOf = func(int) string { return o.WorkerPool }
	}
	return hardware{workerType: o.WorkerType, workerHash: o.WorkerHash, poolOf: poolOf, workerGets: o.WorkerGets, capacity: o.Capacity, bootOf: bootOf}
}

// state is everything that is simulated, under one lock: a caller holds mu while it uses a part. Each part owns its fields; a part above uses
// those below it and is unknown to them.
//
//	market     launches instances
//	fleet      instances and nodes, how they begin and end
//	workload   pods, and which node each is on
//	signals    utilisation and pending pods over time
//	outages    which parts fail
//	ledger     what has happened
//	timeline   the time, and what is to happen
//
// store, events and objects stand beside them: what clients have written, and what only the Kubernetes API has.
type state struct {
	mu      sync.Mutex
	policy  nodes.Policy
	start   time.Time
	zones   []string
	latency time.Duration // of each call
	price   func(typ string, m nodes.Market, zone string) (float64, bool)

	time    *timeline
	ledger  *ledger
	outages *outages
	signals *signals
	pods    *workload
	fleet   *fleet
	market  *market
	store   *store
	events  *eventLog
	objects *objects
}

// newState returns a cluster with its first workers Ready.
func newState(o Options) *state {
	o = o.withDefaults()
	s := &state{policy: o.Policy, start: o.Start, zones: o.Zones, latency: o.Latency, price: o.Price}

	s.time = &timeline{now: o.Start, each: s.settle}
	s.ledger = &ledger{time: s.time, watch: o.Watch}
	s.outages = &outages{time: s.time}
	s.signals = &signals{time: s.time, load: -1}
	s.pods = &workload{time: s.time, ledger: s.ledger}
	s.fleet = &fleet{
		time: s.time, ledger: s.ledger, pods: s.pods, signals: s.signals, hardware: o.hardware(), forgets: o.Watch != nil,
	}
	s.market = &market{time: s.time, ledger: s.ledger, fleet: s.fleet, visible: o.Visible, tokens: map[string]*tokenUse{}, joins: o.Joins}
	s.store = &store{record: nodes.NewRecord(o.Policy.Cluster), items: map[string]nodes.Interruption{}}
	s.events = &eventLog{keys: map[string]bool{}}
	s.objects = &objects{replicas: map[string]int{}}

	s.fleet.addReady(nodes.Instance{
		Type: "server", Zone: o.Zones[0], Market: nodes.OnDemand, ControlPlane: true, LaunchedAt: o.Start.Add(-200 * time.Hour),
	})
	for i, zone := range o.Workers {
		s.fleet.addWorker(zone, o.Start.Add(time.Duration(i-100)*time.Hour))
	}
	s.settle()
	s.ledger.entries = nil // what was there from the beginning hasn't happened
	return s
}

// settle places pending pods, and notes load and pending pods for the signals. It belongs at the end of every change.
func (s *state) settle() {
	pending := s.pods.schedule(s.fleet.nodes)
	s.signals.note(s.fleet.nodes, pending)
}

// pricesOf adds the prices of the types that are sold to out.
func (s *state) pricesOf(types []string, m nodes.Market, zone string, out map[string]float64) {
	if s.price == nil {
		return
	}
	for _, typ := range types {
		if usd, sold := s.price(typ, m, zone); sold {
			out[typ] = usd
		}
	}
}
