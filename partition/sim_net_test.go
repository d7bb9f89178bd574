package partition

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// The simulator runs whole groups of workers on virtual time, in one goroutine,
// from one seed. The machines are the real ones; what carries their effects out
// is modelled after worker.go, bucket.go and pull.go, and the server after
// nats-server 2.15. This file holds time, chance and the connections.

// simEpoch is when virtual time begins.
var simEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// simEvent is something that happens at one moment. An event with a worker is
// local to its process: it waits while the process is stopped, and never
// happens once it is dead.
type simEvent struct {
	at     time.Duration
	seq    uint64
	worker *simWorker
	do     func()
}

type simQueue []*simEvent

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || (q[i].at == q[j].at && q[i].seq < q[j].seq)
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(*simEvent)) }
func (q *simQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}

// sim is one run.
type sim struct {
	states    *simStates // nil without the variant
	seed      uint64
	rng       *rand.Rand
	now       time.Duration
	queue     simQueue
	seq       uint64
	steps     int
	second    time.Duration // the present one, and how many events it has had
	inSecond  int
	cfg       Config
	faults    simFaults
	broken    simBreakage
	forgets   simForgets
	srv       *simServer
	workers   []*simWorker // every process that ever was
	started   int
	check     *simChecker
	quiet     bool // faults have stopped
	previous  bool // workers that start are of the previous version
	overrides map[int]Override
	stolen    bool     // a valid lease was deleted, so a leader takes its worker for gone
	weights   []uint64 // of the slots of the largest slot count; nil: all weigh the same
	desired   int      // workers that there should be; 0: nobody says
	fine      int      // the most slots that the run may have
	wanted    int      // slots that were asked for last; 0: nobody asked
	variant   simVariant
	cluster   bool         // the servers that workers are connected to are one cluster's
	failing   []simFailing // keys whose handlers fail for a while
	killing   []simFailing // keys whose messages kill workers for a while
	callers   []*simCaller // of keys, in the variant with calls
	callTally simCallTally // what became of calls; nil: there are none
	slower    int          // messages are published at 1/slower of the rate; 0: 1
	struck    bool         // a fault came in the middle of a change of that
	observe   func(*simWorker, event.Event)

	crowd   *simCrowd // nil: the group is a small one
	hash    simHash   // of the trace
	tracing bool
	trace   []string
}

// simFaults are the chances of small faults, drawn for each run; the large ones
// are scheduled.
type simFaults struct {
	latency   time.Duration // of one way through a connection, at most
	reconnect time.Duration // until a client tries again, at most
	slow      float64       // chance that one takes far longer
	loseReply float64       // of a write
	linger    float64       // chance that replicas take long to agree on a write
	lingerFor time.Duration // how long at most; 0: twice the lease's TTL
	lateClock time.Duration // until a restarted server notices at most whose time was up
	forget    float64       // chance that a restarted server lets a key live for good whose time was up
	losePeer  float64
	dupePeer  float64
	latePeer  float64
	failWork  float64 // chance that a handler returns an error
	dieHere   float64 // chance of a crash between two effects
	slowWork  float64
	stubborn  float64       // chance that a handler does not heed its context
	slowJoin  time.Duration // between a name and its lease
	lateStore float64       // of a request to the retry stream
	hostile   bool          // somebody writes into the buckets who may not
}

func newSim(seed uint64, tracing bool) *sim {
	s := &sim{seed: seed, hash: simHashBasis, rng: rand.New(rand.NewPCG(seed, 0x5eed)), tracing: tracing}
	s.cfg = s.drawConfig()
	s.fine = s.cfg.Slots
	s.check = newSimChecker(s)
	s.srv = newSimServer(s)
	return s
}

func (s *sim) logf(format string, args ...any) {
	if s.tracing {
		s.trace = append(s.trace, fmt.Sprintf("%6d %10.6f ", s.steps, s.now.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (s *sim) at(t time.Duration, w *simWorker, do func()) {
	s.seq++
	heap.Push(&s.queue, &simEvent{at: max(t, s.now), seq: s.seq, worker: w, do: do})
}

func (s *sim) after(d time.Duration, do func()) { s.at(s.now+d, nil, do) }

// chance reports whether something of probability p happens.
func (s *sim) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

// between draws a duration.
func (s *sim) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(s.rng.Int64N(int64(high-low)))
}

// run goes on until a moment, a violation, or until is true.
func (s *sim) run(end time.Duration, until func() bool) {
	for len(s.queue) > 0 && s.check.violation == nil {
		if s.queue[0].at > end {
			s.now = end
			return
		}
		e := heap.Pop(&s.queue).(*simEvent)
		s.pace(e.at)
		s.now = e.at
		s.steps++
		switch w := e.worker; {
		case w == nil:
			e.do()
		case w.dead:
		case w.stopped:
			w.backlog = append(w.backlog, e)
		default:
			e.do()
		}
		if until != nil && until() {
			return
		}
	}
}

// simStorm is how many events a virtual second can have. A worker that tries something
// again without a pause makes more.
const simStorm = 50_000

// pace counts the events of each virtual second.
func (s *sim) pace(at time.Duration) {
	if second := at.Truncate(time.Second); second != s.second {
		s.second, s.inSecond = second, 0
	}
	if s.inSecond++; s.inSecond > s.storm() {
		s.check.fail("storm", "more than %d events in a second", s.storm())
	}
}

// delay draws the latency of one way between a worker and the server.
func (s *sim) delay() time.Duration {
	d := s.between(50*time.Microsecond, s.faults.latency)
	if !s.quiet && s.chance(s.faults.slow) {
		d += s.between(0, 800*time.Millisecond)
	}
	return d
}

// simLink is a worker's connection. What is sent in one direction arrives in
// order or not at all. The two sides notice a loss at different times.
type simLink struct {
	s         *sim
	w         *simWorker
	client    bool // connected, as the client sees it
	clientGen int
	server    bool // and as the server does
	serverGen int
	cut       bool // nothing passes, and neither side knows
	isolated  bool // the worker's server is cut off from the others, and answers pings
	deaf      bool // something was lost, so nothing later arrives before the reconnect
	heldUp    []func()
	heldDown  []func()
	lastUp    time.Duration
	lastDown  time.Duration
	outbox    []func() // what the client keeps until it is connected again
}

// up sends to the server. While disconnected the client keeps what is sent, as
// nats.go does, and sends it after the reconnect: maybe long after the one who
// asked has given it up.
func (l *simLink) up(do func()) {
	if l.w.dead {
		return
	}
	if !l.client {
		l.outbox = append(l.outbox, do)
		return
	}
	gen := l.clientGen
	l.lastUp = max(l.lastUp+1, l.s.now+l.s.delay())
	l.s.at(l.lastUp, nil, func() {
		if gen != l.serverGen || !l.server || !l.s.srv.up {
			return
		}
		if l.cut {
			l.heldUp = append(l.heldUp, do)
			return
		}
		do()
	})
}

// down sends to the client.
func (l *simLink) down(do func()) {
	if !l.server || !l.s.srv.up {
		return
	}
	gen := l.serverGen
	l.lastDown = max(l.lastDown+1, l.s.now+l.s.delay())
	// It arrives whether or not the process runs: what a cut has held comes before what
	// arrives afterwards, also where both wait for a process that was stopped.
	l.s.at(l.lastDown, nil, func() {
		if l.cut && gen == l.clientGen {
			l.heldDown = append(l.heldDown, func() { l.receive(gen, do) })
			return
		}
		l.receive(gen, do)
	})
}

// receive gives the process what has arrived on a connection.
func (l *simLink) receive(gen int, do func()) {
	l.s.at(l.s.now, l.w, func() {
		if gen == l.clientGen && l.client && !l.deaf {
			do()
		}
	})
}

// lose ends the connection at the server now and at the client when it notices.
func (l *simLink) lose(notice time.Duration) {
	if !l.server {
		return
	}
	l.s.logf("%s: connection lost", l.w)
	l.serverSide(false)
	gen := l.clientGen
	l.s.at(l.s.now+notice, l.w, func() {
		if l.client && l.clientGen == gen {
			l.client = false
			l.w.connectionChanged(false)
			l.retry()
		}
	})
}

func (l *simLink) serverSide(up bool) {
	l.server = up
	l.serverGen++
	if l.cut {
		l.cut, l.deaf = false, true
		l.heldUp, l.heldDown = nil, nil
	}
	if !up {
		l.s.srv.disconnected(l.w)
	}
}

// retry connects again after a while, as long as it takes.
func (l *simLink) retry() {
	wait := l.s.between(2*time.Millisecond, l.s.faults.reconnect)
	l.s.at(l.s.now+wait, l.w, func() {
		if l.client {
			return
		}
		if !l.s.srv.up {
			l.retry()
			return
		}
		l.connect()
	})
}

func (l *simLink) connect() {
	l.s.logf("%s: connected", l.w)
	l.server, l.client, l.deaf = true, true, false
	l.serverGen++
	l.clientGen = l.serverGen
	l.s.srv.connected(l.w)
	outbox := l.outbox
	l.outbox = nil
	for _, do := range outbox {
		l.up(do)
	}
	l.w.connectionChanged(true)
}

// holdTraffic cuts the network; release lets everything arrive late.
func (l *simLink) holdTraffic() {
	if l.server && l.client {
		l.s.logf("%s: network cut", l.w)
		l.cut = true
	}
}

func (l *simLink) release() {
	if !l.cut {
		return
	}
	l.s.logf("%s: network back", l.w)
	l.cut = false
	up, down := l.heldUp, l.heldDown
	l.heldUp, l.heldDown = nil, nil
	for _, do := range up {
		do()
	}
	for _, do := range down {
		do()
	}
}
