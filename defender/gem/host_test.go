package gem

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/defender/secs"
	"github.com/muster-dev/muster/tchart"
)

const period = 100 * time.Millisecond

// memory is a Taker and a Store.
type memory struct {
	mu     sync.Mutex
	runs   map[defender.TChartKey]*ingest.Run
	blobs  map[defender.TChartKey][]byte
	twice  []string
	refuse func(key defender.TChartKey) error
}

func newMemory() *memory {
	return &memory{runs: map[defender.TChartKey]*ingest.Run{}, blobs: map[defender.TChartKey][]byte{}}
}

func (m *memory) Take(_ context.Context, run *ingest.Run) (ingest.Receipt, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := run.Ref.TChart()
	if m.refuse != nil {
		if err := m.refuse(key); err != nil {
			return ingest.Receipt{}, err
		}
	}
	blob, err := tchart.Encode(&run.Trace)
	if err != nil {
		return ingest.Receipt{}, err
	}
	if m.runs[key] != nil {
		m.twice = append(m.twice, key.String())
	}
	m.runs[key], m.blobs[key] = run, blob
	return ingest.Receipt{Rows: len(run.Trace.Time), Sensors: len(run.Trace.SVIDs)}, nil
}

func (m *memory) TChart(_ context.Context, key defender.TChartKey) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if blob, ok := m.blobs[key]; ok {
		return blob, nil
	}
	return nil, defender.ErrNotFound
}

// rig is a host that runs, and what it reports.
type rig struct {
	*memory
	t      *testing.T
	plan   *Plan
	host   *Host
	ledger string
	cancel context.CancelFunc
	ended  chan error

	unloadInterval time.Duration // if above 0, instead of the host's

	changed *sync.Cond
	reports []Report
}

func newRig(t *testing.T, plan *Plan) *rig {
	t.Helper()
	return &rig{memory: newMemory(), t: t, plan: plan, ledger: filepath.Join(t.TempDir(), "ledger"), changed: sync.NewCond(new(sync.Mutex))}
}

func (r *rig) start() {
	r.t.Helper()
	ledger, err := OpenLedger(r.ledger)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.ended = cancel, make(chan error, 1)
	r.host = New(Config{Plan: r.plan, Taker: r, Store: r, Ledger: ledger, Report: r.note})
	if r.unloadInterval > 0 {
		r.host.unloadInterval = r.unloadInterval
	}
	go func(h *Host) {
		err := h.Run(ctx)
		r.ended <- errors.Join(err, ledger.Close())
	}(r.host)
	r.t.Cleanup(cancel)
}

func (r *rig) stop() {
	r.t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		r.t.Errorf("the host ends with %v", err)
	}
}

func (r *rig) note(report Report) {
	r.changed.L.Lock()
	defer r.changed.L.Unlock()
	r.reports = append(r.reports, report)
	r.changed.Broadcast()
}

// reported waits until there is a report of a kind with a text, and returns it.
func (r *rig) reported(what, text string) Report {
	r.t.Helper()
	stop := context.AfterFunc(r.t.Context(), r.changed.Broadcast)
	defer stop()
	deadline := time.AfterFunc(patient, r.changed.Broadcast)
	defer deadline.Stop()
	begin := time.Now()
	r.changed.L.Lock()
	defer r.changed.L.Unlock()
	for {
		for _, report := range r.reports {
			if report.What == what && strings.Contains(report.String(), text) {
				return report
			}
		}
		if r.t.Context().Err() != nil || time.Since(begin) >= patient {
			r.t.Fatalf("no %q with %q is reported, but\n%v", what, text, r.reports)
		}
		r.changed.Wait()
	}
}

// patient is how long a test waits for a report.
const patient = 3 * time.Minute

// all returns the reports of a kind.
func (r *rig) all(what string) []string {
	r.changed.L.Lock()
	defer r.changed.L.Unlock()
	var texts []string
	for _, report := range r.reports {
		if report.What == what {
			texts = append(texts, report.String())
		}
	}
	return texts
}

// planFor returns a plan for pieces of equipment with some chambers and sensors.
func planFor(t testing.TB, chambers, sensors int, group uint32, addresses ...string) *Plan {
	t.Helper()
	kind := Type{
		SVIDs: map[string]uint32{"Clock": clockID}, Clock: "Clock", Chambers: map[string]Chamber{}, Alarms: Alarms{IDs: []uint32{77}},
		Timers: Timers{T3: Duration(5 * time.Second), T5: Duration(10 * time.Millisecond), T6: Duration(5 * time.Second)},
	}
	for k := range uint32(chambers) {
		name := fmt.Sprintf("c%d", k+1)
		alias := func(text string, id uint32) string {
			kind.SVIDs[text+name] = id + k*chamberV
			return text + name
		}
		c := Chamber{Period: Duration(period), Group: group, Start: startEvent + 10*k, End: endEvent + 10*k,
			Run: alias("run", runID), Recipe: alias("recipe", recipeID), Step: alias("step", stepID)}
		for i := range uint32(sensors) {
			c.Sensors = append(c.Sensors, alias(fmt.Sprintf("s%d", i), sensorID+i))
		}
		kind.Chambers[name] = c
	}
	p := &Plan{Schema: 1, Types: map[string]Type{"etch": kind}}
	for i, address := range addresses {
		p.Tools = append(p.Tools, Tool{Name: fmt.Sprintf("etch%d", i+1), Type: "etch", Address: address})
	}
	if faults := p.check(); len(faults) > 0 {
		t.Fatal(faults)
	}
	p.complete()
	return p
}

// process is what equipment does in a chamber, and what the host has to find of it.
type process struct {
	e       *equipment
	chamber uint32
	sensors int
	sample  int
	want    map[string]expected
}

type expected struct {
	first, samples int
	start          time.Time
}

func newProcess(e *equipment, chamber uint32, sensors int) *process {
	p := &process{e: e, chamber: chamber, sensors: sensors, want: map[string]expected{}}
	p.e.set(runID+chamber*chamberV, secs.A("none"))
	p.e.set(recipeID+chamber*chamberV, secs.A("metal/7"))
	p.values()
	return p
}

// values sets the sensors: what they say names the sample.
func (p *process) values() {
	base := p.chamber * chamberV
	p.e.set(stepID+base, secs.Byte(uint8(p.sample%3+1)))
	for i := range p.sensors {
		v := secs.Float(float64(1000*p.sample + i))
		if i%2 == 1 {
			v = float4(math.Float32bits(float32(p.sample) / 2))
		}
		p.e.set(sensorID+base+uint32(i), v)
	}
}

// samples takes some.
func (p *process) samples(n int) {
	for range n {
		p.sample++
		p.values()
		p.e.tick(period)
	}
}

// run does a run of some samples, with others before and after it.
func (p *process) run(name string, n int) {
	p.samples(2)
	p.begin(name, n)
	p.samples(n)
	p.e.event(endEvent + 10*p.chamber)
	p.samples(2)
}

// begin starts a run. The samples at its start and at its end belong to it.
func (p *process) begin(name string, n int) {
	p.e.set(runID+p.chamber*chamberV, secs.A(name))
	p.e.mu.Lock()
	p.want[name] = expected{first: p.sample, samples: n + 1, start: p.e.now}
	p.e.mu.Unlock()
	p.e.event(startEvent + 10*p.chamber)
}

// fault returns what is wrong with a run that was taken; "" if nothing is.
func (p *process) fault(run *ingest.Run) string {
	want, ok := p.want[run.Ref.ID]
	trace := run.Trace
	switch {
	case !ok:
		return "there was no such run"
	case len(trace.Time) != want.samples:
		return fmt.Sprintf("it has %d samples, want %d", len(trace.Time), want.samples)
	case !run.Ref.Start.Equal(want.start), run.Ref.End.Sub(want.start) != time.Duration(want.samples-1)*period:
		return fmt.Sprintf("it is from %s to %s, want a start at %s", run.Ref.Start, run.Ref.End, want.start)
	case run.Ref.Recipe != "metal/7", trace.Recipe != "metal/7", len(trace.SVIDs) != p.sensors:
		return fmt.Sprintf("its recipe is %q and it has %d sensors", run.Ref.Recipe, len(trace.SVIDs))
	}
	for row := range trace.Time {
		n := want.first + row
		if at := float64(row) * period.Seconds(); math.Abs(trace.Time[row]-at) > 1e-9 || int(trace.Step[row]) != n%3+1 {
			return fmt.Sprintf("sample %d is at %v in step %d", row, trace.Time[row], trace.Step[row])
		}
		for i := range p.sensors {
			v := float64(1000*n + i)
			if i%2 == 1 {
				v = float64(float32(n) / 2)
			}
			if trace.Values[i][row] != v {
				return fmt.Sprintf("%s of sample %d is %v, want %v", trace.SVIDs[i], row, trace.Values[i][row], v)
			}
		}
	}
	return ""
}

// check compares what was taken of a chamber with what was done.
func (r *rig) check(tool, chamber string, p *process) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range p.want {
		key := defender.TChartKey{Chamber: defender.Chamber{Tool: tool, Name: chamber}, Context: name}
		run := r.runs[key]
		if run == nil {
			r.t.Errorf("run %s is not taken", key)
		} else if fault := p.fault(run); fault != "" {
			r.t.Errorf("run %s: %s", key, fault)
		}
	}
}

// TestHost: runs of two chambers side by side are taken whole, from samples in groups as well.
func TestHost(t *testing.T) {
	t.Parallel()
	for _, group := range []uint32{1, 7} {
		t.Run(fmt.Sprintf("groups of %d", group), func(t *testing.T) {
			t.Parallel()
			e := startEquipment(t, func(e *equipment) { e.offline = true })
			a, b := newProcess(e, 0, 5), newProcess(e, 1, 3)
			r := newRig(t, planFor(t, 2, 5, group, e.address))
			trimmed := r.plan.Types["etch"].Chambers["c2"]
			trimmed.Sensors = trimmed.Sensors[:3]
			r.plan.Types["etch"].Chambers["c2"] = trimmed
			r.start()
			e.traced(2)
			for i := range 5 {
				a.run(fmt.Sprintf("r%d", i), 20+i)
				b.sample = 0
				b.values()
			}
			a.samples(10) // so that the last group is sent
			e.alarm(77, "chamber pressure")
			e.sent()
			r.reported(Connected, "go-etch 1.0")
			r.reported(Alarm, "77 set (category 4): chamber pressure")
			for i := range 5 {
				r.reported(Taken, fmt.Sprintf("etch1:c1/r%d", i))
			}
			r.stop()
			r.check("etch1", "c1", a)
			for _, what := range []string{Incomplete, Refused, Notice} {
				if got := r.all(what); len(got) > 0 {
					t.Errorf("%s: %q", what, got)
				}
			}
			if !e.alarms[77] || !slices.Contains(e.asked, "S1F17") {
				t.Errorf("alarm 77 was not enabled, or the equipment not put online: it was asked %q", e.asked)
			}
		})
	}
}

// TestHost_incomplete: a link that fails without a spool costs the runs that are open, which
// the host says.
func TestHost_incomplete(t *testing.T) {
	t.Parallel()
	e, p, r := startWithoutSpool(t)
	p.run("whole", 10)
	e.sent()
	p.begin("cut", 10)
	p.samples(5)
	e.sent()
	e.disconnect()
	p.samples(5)
	e.waitFor(func() bool { return e.conn != nil })
	p.samples(5)
	e.event(endEvent)
	p.samples(2)
	p.run("after", 10)
	delete(p.want, "cut")
	r.reported(Notice, "has no spool")
	r.reported(Taken, "c1/whole: 11 samples of 2 sensors")
	r.reported(Incomplete, "c1/cut: samples 20 to 24, ")
	r.reported(Taken, "c1/after")
	r.stop()
	r.check("etch1", "c1", p)
}

// startWithoutSpool starts a host that collects from equipment without a spool.
func startWithoutSpool(t *testing.T) (*equipment, *process, *rig) {
	t.Helper()
	e := startEquipment(t, func(e *equipment) { e.spoolCap = 0 })
	p := newProcess(e, 0, 2)
	r := newRig(t, planFor(t, 1, 2, 1, e.address))
	r.start()
	e.traced(1)
	return e, p, r
}

// TestHost_lostEvents: of equipment without a spool, a run may be lost with no sample.
func TestHost_lostEvents(t *testing.T) {
	t.Parallel()
	e, p, r := startWithoutSpool(t)
	p.samples(2)
	e.sent()

	whileCut := func(happens func()) {
		e.disconnect()
		happens()
		e.waitFor(func() bool { return e.conn != nil })
		p.samples(5)
		e.sent()
	}
	whileCut(func() { p.begin("lost", 5) })
	whileCut(func() { e.event(endEvent) })
	p.run("after", 10)
	r.reported(Taken, "c1/after")
	r.stop()
	r.checkSaid(p)
}

// TestHost_spool: what happened while there was no link, or no host, is taken from the spool.
func TestHost_spool(t *testing.T) {
	t.Parallel()
	for _, transmit := range []int{0, 3} {
		t.Run(fmt.Sprintf("%d a request", transmit), func(t *testing.T) {
			t.Parallel()
			e := startEquipment(t, func(e *equipment) { e.transmit = transmit })
			p := newProcess(e, 0, 2)
			r := newRig(t, planFor(t, 1, 2, 1, e.address))
			r.start()
			e.traced(1)
			p.run("before", 5)
			e.sent()
			p.begin("within", 6)
			p.samples(3)
			e.disconnect()
			p.samples(3)
			e.event(endEvent)
			e.sent()
			r.reported(Taken, "c1/before")

			r.stop()
			e.waitFor(func() bool { return e.conn == nil })
			p.run("without a host", 5)
			r.start()
			r.reported(Taken, "c1/without_a_host")
			e.sent()
			e.waitFor(func() bool { return e.traces[r.trace("c1")].number == 0 }) // it is defined again
			p.run("after", 5)
			r.reported(Taken, "c1/after")
			r.stop()
			p.want["without_a_host"] = p.want["without a host"]
			delete(p.want, "without a host")
			r.check("etch1", "c1", p)
			if got := r.all(Incomplete); len(got) > 0 {
				t.Errorf("%q", got)
			}
			if e.lost > 0 {
				t.Errorf("the equipment lost %d messages", e.lost)
			}
		})
	}
}

// trace returns the ID of a chamber's trace.
func (r *rig) trace(chamber string) uint32 {
	kind := r.plan.Types["etch"]
	return newCollection(&kind, kind.Chambers[chamber]).trace
}

// TestHost_barrenSpool: equipment that says permanently that spooled messages come, or that it is
// busy, and sends none is collected from all the same, and people are told once.
func TestHost_barrenSpool(t *testing.T) {
	t.Parallel()
	for _, code := range []byte{0, 1} {
		t.Run(fmt.Sprintf("answer %d", code), func(t *testing.T) {
			t.Parallel()
			e := startEquipment(t, func(e *equipment) { e.refuse = map[string]byte{"S6F23": code} })
			p := newProcess(e, 0, 2)
			r := newRig(t, planFor(t, 1, 2, 1, e.address))
			r.unloadInterval = time.Millisecond
			r.start()
			r.reported(Notice, "asking for spooled messages: the equipment has accepted S6F23, or said that it is busy, 100 times and sent nothing")
			e.traced(1)
			p.run("first", 5)
			r.reported(Taken, "c1/first")

			e.disconnect()
			e.waitFor(func() bool { // another connection of the same host gives up, too
				n := 0
				for _, name := range e.asked {
					if name == "S6F23" {
						n++
					}
				}
				return n >= 2*maxIdle
			})
			r.stop()
			r.check("etch1", "c1", p)
			if got := r.all(Notice); len(got) != 1 || !strings.Contains(got[0], "write spool: false into the plan if it has none") {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestUnloading_waitsForItself: equipment whose messages wait for this host isn't given up.
func TestUnloading_waitsForItself(t *testing.T) {
	t.Parallel()
	var u unloading
	for range 2 * maxIdle {
		if got := u.answered(0, true); got != spoolComes {
			t.Fatalf("after %d requests: %v", u.requests, got)
		}
	}
	long := 0
	for i := range int64(2 * longSpool) {
		if u.answered(i+1, false) == spoolLong {
			long++
		}
	}
	if long != 1 {
		t.Errorf("people are told %d times that the spool is long", long)
	}
}

// TestChamberState_patience: a trace that stays silent has everything defined again less and
// less often, until it is heard.
func TestChamberState_patience(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		group uint32
		want  []time.Duration
	}{
		{1, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, maxPatience, maxPatience}},
		{10_000, []time.Duration{5000 * time.Second, 5000 * time.Second}}, // of 0.1 s
	} {
		h := New(Config{Plan: planFor(t, 1, 2, test.group, "127.0.0.1:1")})
		s := h.sessions["etch1"]
		c := s.chambers[0]
		for i, want := range test.want {
			if got := c.patience(); got != want {
				t.Errorf("groups of %d, the %dth time: %v, want %v", test.group, i, got, want)
			}
			s.redefine(c)
		}
		sample := secs.New(6, 1, secs.L(secs.Uint(c.trace), secs.Uint(1), secs.A("2026030112000010"), secs.L()))
		if _, err := s.answer(sample); err != nil {
			t.Fatal(err)
		}
		if got := c.patience(); got != test.want[0] {
			t.Errorf("groups of %d, heard again: %v, want %v", test.group, got, test.want[0])
		}
	}
}

// TestNotices: what equipment repeats is reported 20 times, then once a minute with a count.
func TestNotices(t *testing.T) {
	t.Parallel()
	var n notices
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	pass := func() (given, dropped int) {
		for range 100 {
			if ok, more := n.pass("kind", now); ok {
				given, dropped = given+1, dropped+more
			}
		}
		return given, dropped
	}
	for _, step := range []struct {
		after          time.Duration
		given, dropped int
	}{{0, 20, 0}, {noticeEvery - 1, 0, 0}, {1, 1, 180}, {noticeEvery / 2, 0, 0}, {time.Hour, 20, 199}} {
		now = now.Add(step.after)
		if given, dropped := pass(); given != step.given || dropped != step.dropped {
			t.Errorf("after %v more: %d given, %d told as not given; want %d and %d", step.after, given, dropped, step.given, step.dropped)
		}
	}
	if ok, _ := n.pass("another", now); !ok {
		t.Error("one kind holds up another")
	}
	if !n.first("text") || n.first("text") {
		t.Error("a text is given other than once")
	}
}

// TestHost_overflow: a spool that is too small costs runs, which the host says.
func TestHost_overflow(t *testing.T) {
	t.Parallel()
	e := startEquipment(t, func(e *equipment) { e.spoolCap = 10 })
	p := newProcess(e, 0, 2)
	r := newRig(t, planFor(t, 1, 2, 1, e.address))
	r.start()
	e.traced(1)
	p.begin("open", 40)
	p.samples(3)
	e.sent()
	r.stop()
	e.waitFor(func() bool { return e.conn == nil })
	p.samples(37)
	e.event(endEvent)
	r.start()
	r.reported(Incomplete, "c1/open")
	e.sent()
	r.stop()
	if got := r.all(Taken); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestHost_restartedEquipment: equipment that was started again is told again what to send.
func TestHost_restartedEquipment(t *testing.T) {
	t.Parallel()
	e := startEquipment(t, nil)
	p := newProcess(e, 0, 2)
	r := newRig(t, planFor(t, 1, 2, 1, e.address))
	r.start()
	e.traced(1)
	p.begin("open", 40)
	p.samples(3)
	e.sent()
	e.mu.Lock()
	e.forget = true
	e.mu.Unlock()
	e.disconnect()
	e.waitFor(func() bool { return len(e.traces) == 0 })
	p.samples(3)
	r.reported(Notice, "chamber c1 has sent no sample for 10s: everything is defined again")
	e.traced(1)
	p.run("after", 10)
	r.reported(Taken, "c1/after")
	r.reported(Incomplete, "c1/open: the trace began again")
	r.stop()
	delete(p.want, "open")
	r.check("etch1", "c1", p)
}

// TestHost_crash: what a host that died has left open is concluded by the next one.
func TestHost_crash(t *testing.T) {
	t.Parallel()
	r := newRig(t, planFor(t, 1, 2, 1, "127.0.0.1:1"))
	ledger, err := OpenLedger(r.ledger)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ref := func(name string) defender.ContextRef {
		return defender.ContextRef{Chamber: defender.Chamber{Tool: "etch1", Name: "c1"}, ID: name, Start: at, End: at}
	}
	for name, state := range map[string]string{"open": stateOpen, "stored": stateEnded, "unstored": stateEnded, "taken": stateTaken} {
		if err := ledger.write(entry{State: state, Ref: ref(name)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ledger.Close(); err != nil {
		t.Fatal(err)
	}
	stored := ref("stored")
	stored.End = at.Add(time.Second)
	blob, err := tchart.Encode(&tchart.Trace{SVIDs: []string{"a"}, Time: []float64{0, 1}, Step: []int32{1, 1}, Values: [][]float64{{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	r.blobs[stored.TChart()] = blob
	r.start()
	r.reported(Taken, "c1/stored: 2 samples of 1 sensors")
	r.reported(Incomplete, "c1/open: the host ended before")
	r.reported(Incomplete, "c1/unstored: the host ended before")
	r.stop()
	if n := len(r.all(Incomplete)) + len(r.all(Taken)); n != 3 {
		t.Errorf("%d runs are concluded", n)
	}
	r.start()
	r.stop()
	if n := len(r.all(Incomplete)) + len(r.all(Taken)); n != 3 {
		t.Errorf("%d runs are concluded after another start", n)
	}
}

// TestHost_refusals: runs that the taker refuses for a moment are given again; those that it
// refuses for good are reported.
func TestHost_refusals(t *testing.T) {
	t.Parallel()
	e := startEquipment(t, nil)
	p := newProcess(e, 0, 2)
	r := newRig(t, planFor(t, 1, 2, 1, e.address))
	tries := 0
	r.refuse = func(key defender.TChartKey) error {
		if key.Context == "bad" {
			return &ingest.Refusal{Status: 409, Err: errors.New("other content")}
		}
		if tries++; tries < 3 {
			return &ingest.Refusal{Status: 503, RetryAfter: time.Millisecond, Err: errors.New("busy")}
		}
		return nil
	}
	r.start()
	e.traced(1)
	p.run("late", 5)
	p.run("bad", 5)
	r.reported(Taken, "c1/late")
	r.reported(Refused, "c1/bad: other content")
	r.stop()
	delete(p.want, "bad")
	r.check("etch1", "c1", p)
}

// TestHost_definitions: a definition that equipment refuses is reported once, with the fix.
func TestHost_definitions(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"S1F13": "enable communication there",
		"S2F33": "deleting reports: the equipment refuses S2F33 with S2F34 <B 4>",
		"S2F35": "compare start and end with the equipment's list of events",
		"S2F23": "starting the trace of chamber c1: the equipment refuses S2F23 with S2F24 <B 4>: compare sensors",
	} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			e := startEquipment(t, func(e *equipment) { e.refuse = map[string]byte{message: 4} })
			newProcess(e, 0, 2)
			r := newRig(t, planFor(t, 1, 2, 1, e.address))
			r.start()
			asked := func() int {
				n := 0
				for _, name := range e.asked {
					if name == message {
						n++
					}
				}
				return n
			}
			e.waitFor(func() bool { return asked() >= 3 })
			r.reported(Disconnected, want)
			r.stop()
			// On a busy machine a connection may fail for another reason in between, which is reported, too.
			if got := r.all(Disconnected); len(slices.Compact(slices.Clone(got))) != len(got) {
				t.Errorf("a reason is reported again while it is the same: %q", got)
			}
		})
	}
}

// TestHost_Respond: equipment is told of an alarm that begins, as the plan says.
func TestHost_Respond(t *testing.T) {
	t.Parallel()
	e := startEquipment(t, nil)
	newProcess(e, 0, 2)
	plan := planFor(t, 1, 2, 1, e.address)
	c := plan.Types["etch"].Chambers["c1"]
	c.OnAlarm = Response{Terminal: true, Command: "HOLD", Parameters: map[string]string{"CHAMBER": "1"}}
	plan.Types["etch"].Chambers["c1"] = c
	r := newRig(t, plan)
	if !plan.Responds() {
		t.Error("the plan responds to nothing")
	}
	notice := defender.AlarmNotice{Alarm: defender.Alarm{Context: refOf("w7"), Reason: "Pressure of step 2 is 9 sigma high " + strings.Repeat("x", 200)}, Event: defender.AlarmOpened}
	r.start()
	r.reported(Connected, "")
	r.host.Respond(t.Context(), notice)
	r.reported(Responded, "etch1:c1/w7: message to the terminal")
	r.reported(Responded, "etch1:c1/w7: command HOLD")

	notice.Event = defender.AlarmRepeated
	r.host.Respond(t.Context(), notice)
	notice.Event, notice.Context.Chamber.Tool = defender.AlarmOpened, "another"
	r.host.Respond(t.Context(), notice)
	if got := r.all(Responded); len(got) != 2 {
		t.Errorf("%q", got)
	}
	e.mu.Lock()
	if len(e.terminal) != 1 || len(e.terminal[0]) != terminalText || !strings.HasPrefix(e.terminal[0], "c1 run w7: Pressure of step 2") {
		t.Errorf("on the terminal: %q", e.terminal)
	}
	if !slices.Equal(e.commands, []string{`<L <A "HOLD"> <L <L <A "CHAMBER"> <A "1">>>>`}) {
		t.Errorf("commands: %q", e.commands)
	}
	e.refuse = map[string]byte{"S2F41": 2}
	e.mu.Unlock()

	notice.Event, notice.Context = defender.AlarmEscalated, refOf("w8")
	r.host.Respond(t.Context(), notice)
	r.reported(Responded, "w8: command HOLD failed: the equipment refuses S2F41 with S2F42 <B 2>: is it online and remote?")
	r.stop()
	r.host.Respond(t.Context(), notice)
	r.reported(Responded, "w8: command HOLD failed: there is no connection")
}
