// Package scenario runs Muster's worker plane as a whole on one machine and
// checks it: a broker, a store, a collector and many defenders, a script of what
// happens to them, and a checker that knows every message that was published and
// every start and end of processing, whatever the defenders themselves say.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/listen"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// A script is one scenario.
type script struct {
	about string
	cases []string
	run   func(ctx context.Context, s *session) error
	set   func(o *Options) // what the scenario needs of the options
	// small gives options that nobody chose values for this scenario.
	small func(o *Options, chosen func(flag string) bool)
}

var scripts = map[string]script{
	"scale-up": {about: "30 defenders become 45", cases: []string{caseBrief, "newcomer-crash", "partial", "stale-claim"}, run: scaleUp, small: briefly},
	"cold-start": {about: "30 defenders start where none were, with a message waiting for each chamber",
		cases: []string{"newcomer-crash", "partial", "restart"}, run: coldStart},
	"scale-down": {about: "45 defenders become 30, and those that go hand over first",
		cases: []string{"leader-leaves", "leaver-crash"}, run: scaleDown, set: func(o *Options) { o.Defenders += o.newcomers() }},
	"leader-crash": {about: "the leader is killed, three times",
		cases: []string{"in-window", "mid-rebalance"}, run: leaderCrash},
	"rolling-update": {about: "every defender is replaced, five at a time, and no chamber moves",
		cases: []string{"surge"}, run: rollingUpdate, set: func(o *Options) { o.Expect = true }},
	"broker-outage": {about: "the NATS servers are away for 3 seconds",
		cases: []string{"long", caseOneServer}, run: brokerOutage, set: func(o *Options) { o.ownBroker = true }},
	wipedName: {about: "the NATS server loses its store, or a part of it, or is restored from an older copy; the results are kept",
		cases: []string{caseBuckets, caseStreams, caseCopy, caseRestart, caseCopyRestart}, run: brokerWiped, set: func(o *Options) { o.ownBroker, o.Expect = true, true }, small: smallWiped},
	storageFullName: {about: "a backlog fills the NATS servers' storage; publishers are refused, and it drains by itself",
		run: storageFull, set: func(o *Options) { o.maxStore = smallStore }, small: smallStorage},
	"layout": {about: "the chambers are divided in twice as many slots under load",
		cases: []string{"back", "leader-crash"}, run: changeLayout, small: fewSlots},
	"node-pressure": {about: "more defenders are wanted than the nodes hold; a node comes, and goes again",
		cases: []string{"no-hand-over"}, run: nodePressure, set: onSite},
	"spot-interruption": {about: "a Spot warning takes a node away under load",
		cases: []string{"no-hand-over"}, run: spotInterruption, set: onSite},
	chaosName: {about: "defenders and servers are killed, stopped and cut off for minutes; an auditor accounts for every message",
		run: chaos, set: func(o *Options) { o.Processes, o.ownBroker, o.chaotic = true, true, true }, small: smallChaos},
	"load": {about: "traces at a steady rate, or as many as are held: latencies, memory, what the processor does",
		cases: []string{caseStrategies}, run: load, set: func(o *Options) { o.Expect = true }, small: smallLoad},
	leaderGroupName: {about: "the leader and both candidates are killed together, again and again", cases: []string{caseRestarted},
		run: leaderGroupCrash, set: func(o *Options) { o.Processes = true }, small: smallLeaderGroup},
	mixedName: {about: "workers of the previous version and of this one share a group; a rolling update replaces the old ones", cases: []string{casePreviousJoins},
		run: mixedVersion, set: setMixed, small: smallMixed},
	"crash": {about: "defender processes are killed under load, again and again", run: crash, set: func(o *Options) { o.Processes = true }},
	powerCutName: {about: "the NATS servers lose power under load, again and again, and with it what they have not synced",
		cases: []string{caseOneServer}, run: powerCut, set: onDisks, small: smallPowerCut},
}

// Names returns the names of all scenarios, in order.
func Names() []string { return slices.Sorted(maps.Keys(scripts)) }

// Describe returns a line for each scenario that says what happens in it.
func Describe() string {
	var b strings.Builder
	for _, name := range Names() {
		_, _ = fmt.Fprintf(&b, "  %-27s %s\n", name, scripts[name].about)
	}
	return b.String()
}

// Cases returns the cases of a scenario, none for one that is unknown.
func Cases(name string) []string { return slices.Clone(scripts[name].cases) }

// DescribeCases returns the cases of each scenario that has any.
func DescribeCases() string {
	var all []string
	for _, name := range Names() {
		if cases := scripts[name].cases; len(cases) > 0 {
			all = append(all, name+" "+strings.Join(cases, ", "))
		}
	}
	return strings.Join(all, "; ")
}

// OnNodes returns the names of the scenarios whose defenders run as pods on nodes.
func OnNodes() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		var o Options
		if set := scripts[name].set; set != nil {
			set(&o)
		}
		return !o.onSite
	})
}

// session is one run of a script.
type session struct {
	*cluster
	o      Options
	report *Report
	out    io.Writer
	outMu  sync.Mutex
	onSeen atomic.Pointer[func(seen)] // called for each event, if set
	tally  tally                      // of processed messages; progress has it

	unsureMu sync.Mutex
	unsure   pauses // of defenders that can't confirm their lease
}

// newSession returns a session that begins now.
func newSession(o Options, name string) *session {
	return &session{o: o, report: newReport(name, o.Case), out: o.Out, unsure: pauses{every: pausesEvery, hint: name == ""}}
}

// open starts everything but the defenders.
func (s *session) open(ctx context.Context, o Options) error {
	c, err := startCluster(ctx, o, s.tellEvent)
	if err != nil {
		return err
	}
	s.cluster = c
	// A directory that was used before may have messages that wait.
	if s.tally.atStart, err = c.left(ctx); err != nil {
		return errors.Join(err, c.close())
	}
	return nil
}

func (s *session) say(format string, args ...any) {
	t := time.Since(s.report.began).Seconds()
	text := fmt.Sprintf(format, args...)
	s.outMu.Lock()
	defer s.outMu.Unlock()
	s.report.Timeline = append(s.report.Timeline, Moment{T: t, Event: text})
	_, _ = fmt.Fprintf(s.out, "%8.3fs  %s\n", t, text)
}

// print writes a line that is no part of the report's story.
func (s *session) print(line string) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	_, _ = fmt.Fprintf(s.out, "%8.3fs  %s\n", time.Since(s.report.began).Seconds(), line)
}

// tellEvent tells of the events that make the story.
func (s *session) tellEvent(e seen) {
	if f := s.onSeen.Load(); f != nil {
		(*f)(e)
	}
	s.pauseEvent(e)
	switch e.Kind {
	case event.Topology:
		s.say("%s: Topology change: %d → %d defenders", e.Worker, e.Before, e.After)
	case event.WindowStarted:
		s.say("%s: Stabilization window started (%s, %s)", e.Worker, e.Duration.Round(time.Second), e.Reason)
	case event.WindowDone:
		s.say("%s: Stabilization window complete after %.1f s (%d defenders, %s)", e.Worker, e.Duration.Seconds(), e.After, e.Reason)
	case event.WorkerGone:
		s.say("%s: Defender gone: %s (%s)", e.Worker, e.Peer, e.Reason)
	case event.Planned:
		s.say("%s: Assignment calculation complete (%s, %d chambers in %d slots move)", e.Worker, e.Duration.Round(time.Microsecond), e.Keys, e.Count)
	case event.MapPublished:
		s.say("%s: Published assignment map (version %d, %d defenders, %s)", e.Worker, e.Version, e.After, e.Reason)
	case event.Rebalanced:
		s.say("%s: Rebalancing complete (version %d, %.0f ms after its plan)", e.Worker, e.Version, e.Duration.Seconds()*1000)
	case event.IdentityLost, event.HandoffForced:
		s.say("%s: %s %s", e.Worker, e.Kind, e.Reason)
	default:
	}
}

// Suit gives the options that were not chosen, by their flags' names, the values
// that suit a scenario, where those of the flags don't.
func Suit(name string, o *Options, chosen func(flag string) bool) {
	if sc := scripts[name]; sc.small != nil {
		sc.small(o, chosen)
	}
}

// suit gives an option a value, unless its flag was chosen.
func suit[T any](chosen func(flag string) bool, flag string, option *T, value T) {
	if !chosen(flag) {
		*option = value
	}
}

// CheckOptions returns what is wrong with asking for a scenario with these options.
func CheckOptions(name string, o Options) error {
	sc, ok := scripts[name]
	if !ok {
		return misuse.Errorf("--scenario %q is unknown: give one of %s", name, strings.Join(Names(), ", "))
	}
	if o.Case != "" && !slices.Contains(sc.cases, o.Case) {
		if len(sc.cases) == 0 {
			return misuse.Errorf("--case %q: scenario %s has no cases", o.Case, name)
		}
		return misuse.Errorf("--case %q is unknown: scenario %s has %s", o.Case, name, strings.Join(sc.cases, ", "))
	}
	if err := o.Validate(); err != nil {
		return &misuse.Error{Err: err}
	}
	if sites := OnNodes(); o.Lab && !slices.Contains(sites, name) {
		return misuse.Errorf("--lab: scenario %s has no nodes: play %s with it", name, strings.Join(sites, " or "))
	}
	if name != loadName && o.Points != 0 {
		return misuse.Errorf("--points is for scenario %s: traces are as they are recorded or generated in %s", loadName, name)
	}
	if name == loadName && o.Processes {
		return misuse.Errorf("--processes: scenario %s measures one process: leave it out", loadName)
	}
	if name == chaosName && o.RetryAttempts > 0 && o.RetryAttempts < 10 {
		return misuse.Errorf("--retry-attempts is %d: scenario %s has messages fail for some 10 s, and none of them is to be put aside: give 10 or more, or 0", o.RetryAttempts, chaosName)
	}
	if err := checkPowerCuts(name, o); err != nil {
		return err
	}
	if name == wipedName && o.Servers > 1 {
		return misuse.Errorf("--servers is %d: scenario %s wipes the only server, since one of several gets everything back from the others: leave it out", o.Servers, wipedName)
	}
	if (name == mixedName) != (o.Previous != "") {
		return misuse.Errorf("--previous is the muster binary of the version before, for scenario %s, which needs it: build one with git worktree add ../before COMMIT, and go build -o muster-before ./cmd/muster there", mixedName)
	}
	if info, err := os.Stat(o.Previous); name == mixedName && (err != nil || info.IsDir() || info.Mode()&0o111 == 0) {
		return misuse.Errorf("--previous %s is no program: give the muster binary of the version before", o.Previous)
	}
	if o.Case == caseOneServer && o.Servers < 3 {
		return misuse.Errorf("--case one-server needs others that go on: give --servers 3 --replicas 3")
	}
	return nil
}

// Run runs a scenario and returns its report. The error is of what kept it from
// being carried through; failed checks are in the report.
func Run(ctx context.Context, name string, o Options) (*Report, error) {
	if err := CheckOptions(name, o); err != nil {
		return nil, err
	}
	sc := scripts[name]
	o = o.resolve()
	if sc.set != nil {
		sc.set(&o)
	}
	s := newSession(o, name)
	if err := s.open(ctx, o); err != nil {
		return nil, unlessEnded(ctx, err)
	}
	s.say("Broker at %s, everything kept in %s", s.brokers.url, s.dir)
	progress, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.progress(progress) })
	wg.Go(func() { s.tellPauses(progress) })
	err := sc.run(ctx, s)
	stop()
	wg.Wait()
	if err == nil {
		err = s.checkRefusals(s.report)
	}
	closing := time.Now()
	if t := s.site.Load(); t != nil {
		err = errors.Join(err, t.close())
	}
	if closeErr := s.close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	} else {
		s.say("All stopped in %.1f s", time.Since(closing).Seconds())
	}
	if err != nil {
		return s.report, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s.report, nil
}

// Up runs everything until ctx ends.
func Up(ctx context.Context, o Options) error {
	return up(ctx, o, process)
}

// process tells how processing goes until ctx ends.
func process(ctx context.Context, t *site) error {
	t.s.say("Processing at %d messages/s; interrupt (Ctrl-C) to stop", t.s.o.Rate)
	t.s.tellWhatNext(ctx)
	t.s.progress(ctx)
	return nil
}

// up starts everything, does what is to be done then and stops everything.
func up(ctx context.Context, o Options, then func(context.Context, *site) error) error {
	if err := o.Validate(); err != nil {
		return &misuse.Error{Err: err}
	}
	onSite(&o)
	s := newSession(o, "")
	if err := s.open(ctx, o); err != nil {
		return unlessEnded(ctx, err)
	}
	told, stop := context.WithCancel(ctx)
	defer stop()
	go s.tellPauses(told)
	err := ignoreEnd(ctx, s.onSite(ctx, then))
	stop()
	s.say("Stopping")
	if t := s.site.Load(); t != nil {
		err = errors.Join(err, t.close())
	}
	err = errors.Join(err, s.close())
	s.say("All stopped")
	return err
}

// tellWhatNext says what a person can do with a running up, with what they need for it.
func (s *session) tellWhatNext(ctx context.Context) {
	lines := fmt.Sprintf("           Look from another terminal: muster partitions status --nats %[1]s\n           Follow what happens:        muster partitions events --follow --nats %[1]s\n", s.brokers.url)
	if list, err := partition.Open(s.conn, defender.Group).Members(ctx); err == nil {
		pids := s.processIDs()
		for _, m := range slices.Backward(list) {
			if pid := pids[m.Pod]; pid > 0 {
				lines += fmt.Sprintf("           Kill a defender:            kill -9 %-5d                  (%s; the console tells the others' processes)\n", pid, m.ID)
				break
			}
		}
	}
	s.outMu.Lock()
	defer s.outMu.Unlock()
	_, _ = io.WriteString(s.out, lines)
}

func (s *session) onSite(ctx context.Context, then func(context.Context, *site) error) error {
	s.say("Broker at %s, everything kept in %s", s.brokers.url, s.dir)
	t, err := openSite(ctx, s, zonesFor(s.o.Defenders), true, cmp.Or(s.o.pendingUp, 2*siteBoot))
	if err != nil {
		return err
	}
	if _, err := t.start(ctx, s.o.Defenders); err != nil {
		return err
	}
	return then(ctx, t)
}

// unlessEnded marks what went wrong at the start as wrong usage: a port, a
// directory, a file that the options name.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &misuse.Error{Err: err}
}

func ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// serve serves the console, and metrics beside it. Where they are is told when all that
// they show is started: see tellAddress.
func (c *cluster) serve(ctx context.Context) error {
	show, err := newScreen(c)
	if err != nil {
		return err
	}
	c.screen = show
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stopScreen = stop
	go show.Run(running)
	mux := http.NewServeMux()
	mux.Handle("/", show)
	mux.Handle("GET /metrics", c.metricsHandler())
	mux.HandleFunc("GET /health/live", func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(rw, `{"status":"live"}`) })
	at, err := listen.HTTP(ctx, c.o.HTTP, mux)
	if err != nil {
		return err
	}
	c.address = at
	return nil
}

// tellAddress tells where the console is, once it answers.
func (c *cluster) tellAddress(ctx context.Context) error {
	if c.address == "" {
		return nil
	}
	within := c.patience(10 * time.Second)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/health/live", nil)
	if err != nil {
		return fmt.Errorf("asking the console at %s whether it answers: %w", c.address, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the console at %s does not answer within %v: %w: give another address with --http", c.address, within, err)
	}
	_ = res.Body.Close()
	_, _ = fmt.Fprintf(c.o.Out, "Console: http://%s    metrics of both planes: http://%s/metrics\n", c.address, c.address)
	return nil
}

// begin starts the first defenders and the traffic, and waits until all share
// all chambers.
func (s *session) begin(ctx context.Context) error {
	if err := s.assemble(ctx); err != nil {
		return err
	}
	s.traffic.rate.Store(int64(s.o.Rate))
	return nil
}

// assemble starts the first defenders and waits until all share all chambers.
func (s *session) assemble(ctx context.Context) error {
	// The first window must not wait for those who come later, whether or
	// not the scenario lets the number be known then.
	if err := s.setExpected(ctx, s.o.Defenders); err != nil {
		return err
	}
	kind := "goroutines"
	if s.o.Processes {
		kind = "processes"
	}
	s.say("Starting %d defenders as %s, %d chambers in %d slots", s.o.Defenders, kind, s.o.Chambers, s.o.Slots)
	if _, err := s.add(ctx, s.o.Defenders); err != nil {
		return err
	}
	if err := s.wait(ctx, 2*time.Minute, "all defenders STABLE", func() bool { return s.view.stable(s.o.Defenders) }); err != nil {
		return err
	}
	a := s.view.latest()
	s.say("%d defenders STABLE, assignment map version %d", s.o.Defenders, a.Version)
	return nil
}

// drain waits until everything that was published is processed.
func (s *session) drain(ctx context.Context) error {
	const within = 3 * time.Minute
	s.traffic.rate.Store(0)
	if err := s.wait(ctx, within, "everything queued published", func() bool { return s.traffic.waiting.Load() == 0 }); err != nil {
		return err
	}
	s.traffic.mu.Lock()
	faults := errors.Join(s.traffic.faults...)
	s.traffic.mu.Unlock()
	if faults != nil {
		return fmt.Errorf("the collector could not publish everything: %w", faults)
	}
	js, err := s.pending(ctx)
	if err != nil {
		return err
	}
	return s.wait(ctx, within, "everything published processed", func() bool { n, err := js(); return err == nil && n == 0 })
}
