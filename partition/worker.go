package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/state"
)

// Worker takes part in sharing out a group's keys. It is made by New and works
// in Run.
type Worker struct {
	cfg     Config
	layout  layout
	nc      *nats.Conn
	handler Handler
	guard   guard // of what is the user's

	inputs chan input
	ran    atomic.Bool // Run was called
	done   chan struct{}
	status atomic.Pointer[Status]
	events eventCounts
	// waiting is what the leader knows of messages that are not processed; nil: not known.
	waiting atomic.Pointer[waitingMessages]

	js      jetstream.JetStream
	buckets *buckets
	pull    *puller
	pulling atomic.Pointer[puller] // pull, for those who look from outside
	machine *machine
	keeper  *keeper
	ousted  atomic.Pointer[error] // why it leaves although nobody asked it to

	peerSub   *nats.Subscription
	yieldSub  *nats.Subscription
	fenceSub  *nats.Subscription
	probeSub  *nats.Subscription
	probeBox  string
	mapping   context.CancelFunc // of the watch of the map
	leases    context.CancelFunc // of the watch, while leading
	names     context.CancelFunc // of the watch, while a standby
	standby   *nats.Subscription // answers who asks for standbys
	taking    chan struct{}      // bounds take-overs under way
	farewells sync.WaitGroup
}

// Status is what a worker knows of itself at one moment.
type Status struct {
	ID           string
	Claim        uint64
	State        state.State
	Leading      bool
	Leader       string // stable ID, "" if unknown
	Version      uint64 // of the assignment map, 0 before the first
	Slots        []int  // that it pulls for
	SlotsOf      int    // in how many the keys are divided, 0 before the first map
	Yielding     bool   // gives its slots away and takes none
	Standby      bool   // as many as are wanted have a stable ID; it waits for one
	TrustedUntil time.Time
	LeaseRenewed time.Time // when the last renewal of its lease that succeeded was begun; zero without a lease
	// RefusedSince is since when none of its writes to the group's buckets succeeded,
	// and Refused why the last one failed; zero and empty if it succeeded.
	RefusedSince  time.Time
	Refused       string
	refused       time.Time // since when the servers answer and refuse; zero: they don't
	ActiveWorkers int       // that the leader sees; 0 elsewhere
}

// New checks a configuration and returns a worker that has not begun. Errors
// name every fault.
func New(nc *nats.Conn, cfg Config, h Handler) (*Worker, error) {
	cfg = cfg.resolve()
	lay, err := cfg.validate()
	if nc == nil {
		err = errors.Join(err, errors.New("partition: the connection is nil"))
	}
	if h == nil {
		err = errors.Join(err, errors.New("partition: the handler is nil"))
	}
	if _, ok := h.(Abandoner); h != nil && cfg.Retry.Attempts > 0 && !ok {
		err = errors.Join(err, fmt.Errorf("partition: Retry.Attempts is %d and the handler can't give a message up: implement Abandoner, or leave it at 0", cfg.Retry.Attempts))
	}
	if err != nil {
		return nil, err
	}
	instance := nuid.Next()
	if cfg.Pod == "" {
		cfg.Pod, _ = os.Hostname()
	}
	if cfg.PodUID == "" {
		cfg.PodUID = instance
	}
	w := &Worker{layout: lay, nc: nc, handler: h, inputs: make(chan input, 1024), done: make(chan struct{}), taking: make(chan struct{}, 32)}
	w.guard = newGuard(cfg, w.post)
	cfg.Expected = w.guard.expected(cfg.Expected)
	w.cfg, w.machine = cfg, newMachine(cfg, instance)
	w.status.Store(&Status{State: state.Init})
	w.keeper = newKeeper(w)
	return w, nil
}

// Status returns the worker's state. It may be called at any time.
func (w *Worker) Status() Status { return *w.status.Load() }

// Parked returns what this worker knows of parked messages; see Config.Retry. It
// may be called while Run works.
func (w *Worker) Parked() ParkedHere {
	if p := w.pulling.Load(); p != nil {
		return p.parked()
	}
	return ParkedHere{}
}

// ErrRunTwice says that Run was called before on this worker.
var ErrRunTwice = errors.New("it was run before: a worker runs once, make another with New")

// Run joins the group, takes its share of the keys and works until ctx ends;
// then it hands over what it has, waits for the handlers that run, and returns
// nil. Leaving takes at most Config.LeaveTimeout. It makes what Provision makes
// if nobody has. A worker runs once: the second call returns ErrRunTwice.
//
// While the connection is away Run keeps trying; it returns an error only when
// it can't begin, for what may pass after 30 s of trying, or when the connection was
// closed by its owner.
func (w *Worker) Run(ctx context.Context) error {
	if w.ran.Swap(true) {
		return fmt.Errorf("running worker of %s: %w", w.cfg.Name, ErrRunTwice)
	}
	defer close(w.done)
	if err := w.open(ctx); err != nil {
		return err
	}
	defer w.close()
	w.remap()
	defer func() { w.mapping() }()
	status := w.nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	pending, stop := context.WithCancel(context.Background())
	defer stop()
	go w.watchPending(pending)
	go w.keeper.run(pending)
	refusals, err := w.answerRefusals()
	if err != nil {
		return fmt.Errorf("running worker of %s: subscribing for questions: %w", w.cfg.Name, err)
	}
	defer func() { _ = refusals.Unsubscribe() }()
	progress := time.NewTicker(w.cfg.AckWait / 3)
	defer progress.Stop()
	if err := w.loop(ctx, status, progress.C); err != nil {
		return err
	}
	if err := w.ousted.Load(); err != nil {
		return *err
	}
	return nil
}

// openPatience is how long a worker tries to begin while servers don't answer, or
// elect leaders among themselves. What starts while one of them is gone would end at
// once otherwise.
const openPatience = 30 * time.Second

// open makes ready what the machine works with.
func (w *Worker) open(ctx context.Context) error {
	for end := time.Now().Add(openPatience); ; {
		err := w.tryOpen(ctx)
		if err == nil {
			return nil
		}
		if !passing(err) || ctx.Err() != nil || time.Now().After(end) {
			return fmt.Errorf("starting worker of %s: %w", w.cfg.Name, err)
		}
		w.cfg.Logger.Warn("The servers are not ready; again.", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// passing reports whether an error may be over in a moment: nobody answered, or
// JetStream has no leader at the moment (status 503).
func passing(err error) bool {
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return false
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == http.StatusServiceUnavailable ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting)
}

func (w *Worker) tryOpen(ctx context.Context) error {
	js, err := jetstream.New(w.nc)
	if err != nil {
		return err
	}
	w.js = js
	kv, err := js.KeyValue(ctx, w.cfg.bucketMap())
	base := w.cfg.Slots
	if err == nil {
		base, err = checkLayout(ctx, kv, w.cfg)
	}
	// What others have lost is created again by who comes next, too.
	var again []string
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, errNotProvisioned):
		if again, err = provision(ctx, w.nc, w.cfg); err == nil {
			kv, err = js.KeyValue(ctx, w.cfg.bucketMap())
		}
		if err == nil { // Another worker may have provisioned first, with another number of slots.
			err = caughtUp(ctx, func() (err error) {
				base, err = checkLayout(ctx, kv, w.cfg)
				return err
			})
		}
	case err == nil:
		again, err = w.complete(ctx, base)
	}
	w.keeper.tell(again)
	if err != nil {
		return err
	}
	w.cfg.Slots, w.layout.base, w.machine.cfg.Slots = base, base, base
	// Its keys are worth more than a record of what happens to them.
	if err := provisionEvents(ctx, js, w.cfg); err != nil {
		w.cfg.Logger.Warn("The stream of events can't be made; they are told and not kept.", "stream", eventStreamName(w.cfg.Name), "err", err)
	}
	if err := caughtUp(ctx, func() error { return agree(ctx, js, kv, w.cfg, w.layout, false) }); err != nil {
		return err
	}
	if w.buckets, err = openBuckets(ctx, js, w.cfg); err != nil {
		return err
	}
	w.buckets.saw = w.keeper.saw
	var stream jetstream.Stream
	if w.cfg.Retry.Enabled {
		if stream, err = provisionRetry(ctx, js, w.cfg, w.layout); err != nil {
			return err
		}
	}
	if w.pull, err = newPuller(w.cfg, w.layout, w.nc, js, w.handler, w.post); err != nil {
		return err
	}
	if w.cfg.Retry.Enabled {
		w.pull.retry = &retryStore{nc: w.nc, stream: stream, name: retryStreamName(w.cfg.Stream), lay: w.layout, room: newRoom()}
	}
	w.pulling.Store(w.pull)
	w.probeBox = w.nc.NewInbox()
	w.probeSub, err = w.nc.Subscribe(w.probeBox+".*.*", w.probeAnswered)
	if err != nil {
		return err
	}
	return nil
}

func (w *Worker) close() {
	w.pull.close()
	if w.leases != nil {
		w.leases()
	}
	w.watchNames(false)
	_ = w.probeSub.Unsubscribe()
	w.listen(Member{})
}

// post hands an input to the loop; after its end, to nobody.
func (w *Worker) post(in input) {
	select {
	case w.inputs <- in:
	case <-w.done:
	}
}

// loop is the only goroutine that touches the machine.
func (w *Worker) loop(ctx context.Context, status <-chan nats.Status, progress <-chan time.Time) error {
	m := w.machine
	timer := time.NewTimer(0)
	defer timer.Stop()
	leave := ctx.Done()
	next := []input{startInput{}}
	for {
		for _, in := range next {
			for _, e := range m.step(time.Now(), in) {
				w.execute(e)
			}
		}
		w.publishStatus()
		if m.stage == stageGone {
			return nil
		}
		w.sleepUntil(timer, m.wake())
		next = next[:0]
		select {
		case in := <-w.inputs:
			if lost, is := in.(recreatedInput); is && lost.name == resourceName(bucketPrefix+w.cfg.bucketMap()) {
				w.remap() // its watch is of what is no more
			}
			// An answer that came after a reconnect must not be seen before the
			// disconnect: it would prove a connection that was gone meanwhile.
			next = append(w.connectionChanges(status), in)
		case <-timer.C:
			next = append(w.connectionChanges(status), tickInput{})
		case <-progress:
			w.pull.inProgress()
			next = append(next, tickInput{})
		case s := <-status:
			next = w.connectionChange(next, s)
		case <-leave:
			leave = nil
			next = append(next, leaveInput{})
		}
		if w.nc.IsClosed() {
			return fmt.Errorf("worker %s: the connection was closed", m.self.ID)
		}
	}
}

// connectionChanges returns what is known of the connection and not told yet.
func (w *Worker) connectionChanges(status <-chan nats.Status) []input {
	var in []input
	for {
		select {
		case s := <-status:
			in = w.connectionChange(in, s)
		default:
			return in
		}
	}
}

// connectionChange tells of every disconnect, even one that is over by now:
// somebody may have seen it. Whether the connection is there now is asked, not
// read from the event, since events are dropped when there are too many.
func (w *Worker) connectionChange(in []input, s nats.Status) []input {
	if s != nats.CONNECTED {
		in = append(in, connectionInput{up: false})
	}
	if w.nc.IsConnected() {
		if s == nats.CONNECTED {
			w.remap()
			w.keeper.poke() // a server that was away may have lost something
		}
		in = append(in, connectionInput{up: true})
	}
	return in
}

// shortestSleep keeps a wake-up in the past from spinning.
const shortestSleep = 2 * time.Millisecond

func (w *Worker) sleepUntil(t *time.Timer, at time.Time) {
	if at.IsZero() {
		t.Reset(time.Hour)
		return
	}
	t.Reset(max(time.Until(at), shortestSleep))
}

func (w *Worker) publishStatus() {
	m := w.machine
	if m.lease.valid {
		w.pull.trustUntil(m.membership.leaseEnds())
	}
	s := &Status{ID: m.self.ID, Claim: m.self.Claim, State: m.state, Leading: m.leaderLease.held, Leader: m.leader.ID, Standby: m.identity.standby, Yielding: m.membership.yielding(), ActiveWorkers: len(m.lead.roster.peers)}
	if m.cur != nil {
		s.Version, s.SlotsOf = m.cur.Version, m.cur.Slots
	}
	if m.lease.valid {
		s.TrustedUntil = m.membership.leaseEnds()
	}
	if m.stage == stageMember || m.stage == stageLeaving {
		s.LeaseRenewed = m.lease.renewed
	}
	s.RefusedSince, s.Refused, s.refused = m.refusals.since, m.refusals.why, m.refusals.refused
	for slot, st := range m.own.slots {
		if st.phase == phaseHolding || st.phase == phaseReleasing {
			s.Slots = append(s.Slots, slot)
		}
	}
	slices.Sort(s.Slots)
	w.status.Store(s)
}

// execute carries one effect out. What takes time does so in a goroutine of its
// own and comes back as an input.
func (w *Worker) execute(e effect) {
	switch e := e.(type) {
	case kvEffect:
		w.operate(e)
	case answerEffect:
		_ = w.nc.Publish(e.to, mustJSON(yieldReply{Schema: valueSchema, ID: w.machine.self.ID, Slots: e.slots}))
	case pingEffect:
		go w.ping(e.start)
	case probeEffect:
		for _, to := range e.to {
			_ = w.nc.PublishRequest(peerSubject(w.cfg.Name, to), fmt.Sprintf("%s.%s.%d", w.probeBox, to.ID, to.Claim), nil)
		}
	case reportFenceEffect:
		_ = w.nc.Publish(fenceSubject(w.cfg.Name, e.report.To), mustJSON(e.report))
	case sendEffect:
		_ = w.nc.Publish(peerSubject(w.cfg.Name, e.to), mustJSON(e.msg))
	case watchLeasesEffect:
		w.watchLeases(e)
	case watchNamesEffect:
		w.watchNames(e.on)
	case weightsEffect:
		go w.loadWeights()
	case shareLoadEffect:
		go w.shareLoad(e)
	case planEffect:
		go w.plan(e.job)
	case prepareEffect:
		go w.prepare(e)
	case holdEffect:
		if e.handed {
			w.pull.pauses.begin(e.place, time.Now(), e.idle)
		}
		w.pull.hold(e.place, e.fence)
	case releaseEffect:
		w.pull.release(e)
	case forceEffect:
		w.pull.force(e.place)
	case dropEffect:
		w.pull.dropSlot(e.place)
	case suspendEffect:
		w.pull.suspend(true)
	case resumeEffect:
		w.pull.trustUntil(w.machine.membership.leaseEnds())
		w.pull.suspend(false)
	case takeEffect:
		go w.take(e)
	case listenEffect:
		w.listen(e.self)
	case emitEffect:
		w.emit(e.event)
	case exitEffect:
		w.farewells.Wait()
	}
}

func (w *Worker) operate(e kvEffect) {
	if e.purpose == forFarewell {
		w.farewells.Add(1)
	}
	go func() {
		in := w.buckets.run(context.Background(), e, w.operationTimeout())
		if e.purpose == forFarewell {
			w.farewells.Done()
		}
		w.post(in)
	}()
}

func (w *Worker) operationTimeout() time.Duration { return w.cfg.LeaseTTL / 4 }

func (w *Worker) ping(start time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.SuspicionGrace)
	defer cancel()
	// A reconnect may lead to another kind of server: either one, before or after the
	// answer, makes it one that doesn't confirm the lease.
	clustered := w.clustered()
	if w.nc.FlushWithContext(ctx) == nil {
		w.post(pongInput{start: start, clustered: clustered || w.clustered()})
	}
}

// clustered reports whether the server of the connection is one of several: a member of a
// cluster or a leaf node. Only such a server names its cluster.
func (w *Worker) clustered() bool { return w.nc.ConnectedClusterName() != "" }

// Peers.

func (w *Worker) listen(self Member) {
	if w.peerSub != nil {
		_ = w.peerSub.Unsubscribe()
		w.peerSub = nil
	}
	if w.yieldSub != nil {
		_ = w.yieldSub.Unsubscribe()
		w.yieldSub = nil
	}
	if w.fenceSub != nil {
		_ = w.fenceSub.Unsubscribe()
		w.fenceSub = nil
	}
	if self == (Member{}) {
		return
	}
	sub, err := w.nc.Subscribe(peerSubject(w.cfg.Name, self), w.peerCalled)
	if err != nil {
		w.cfg.Logger.Error("Subscribing for messages of other workers failed.", "err", err)
		return
	}
	w.peerSub = sub
	if w.fenceSub, err = w.nc.Subscribe(fenceSubject(w.cfg.Name, self), w.fenceReported); err != nil {
		w.cfg.Logger.Error("Subscribing for reports of rejected fences failed.", "err", err)
	}
	if w.yieldSub, err = w.nc.Subscribe(yieldSubject(w.cfg.Name, self), w.yieldCalled); err != nil {
		w.cfg.Logger.Error("Subscribing for requests to hand over failed.", "err", err)
	}
}

// maxPeerMessage bounds what is read: all slots of the largest layout.
const maxPeerMessage = 64 * maxSlots

func (w *Worker) peerCalled(msg *nats.Msg) {
	if len(msg.Data) == 0 {
		return // a probe: being subscribed is the answer
	}
	pm, err := decodePeer(msg.Data, maxSlots)
	if err != nil {
		w.refuse(recordPeer, msg.Subject, err)
		return
	}
	w.post(peerInput{pm})
}

func (w *Worker) fenceReported(msg *nats.Msg) {
	r, err := decodeFence(msg.Data)
	if err != nil {
		w.refuse(recordFence, msg.Subject, err)
		return
	}
	w.post(fenceReportInput{r})
}

// probeAnswered: only the server answers a probe, and only when nobody listens.
func (w *Worker) probeAnswered(msg *nats.Msg) {
	if msg.Header.Get("Status") != "503" {
		return
	}
	var m Member
	rest := msg.Subject[len(w.probeBox)+1:]
	for i := range rest {
		if rest[i] == '.' {
			m.ID = rest[:i]
			if _, err := fmt.Sscanf(rest[i+1:], "%d", &m.Claim); err != nil {
				return
			}
		}
	}
	w.post(unreachableInput{m})
}

// Watches.

// remap watches the bucket of the map, anew after each reconnect: a server that
// was restarted has forgotten who watched, and the client would find out late.
// What comes twice is old and does nothing.
func (w *Worker) remap() {
	if w.mapping != nil {
		w.mapping()
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.mapping = cancel
	go w.keepFollowing(ctx, "the assignment map", w.followMap)
}

// keepFollowing follows something until ctx ends, again when it fails.
func (w *Worker) keepFollowing(ctx context.Context, what string, follow func(context.Context) error) {
	for ctx.Err() == nil {
		// The client says "connected" before it has subscribed again for
		// everything; a subscription made meanwhile is made twice, and a
		// consumer that delivers to it may find nobody.
		err := w.flush(ctx)
		if err == nil {
			err = follow(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		w.cfg.Logger.Warn("Watching failed; again.", "what", what, "err", err)
		if goneError(err) {
			w.keeper.poke()
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

func (w *Worker) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return w.nc.FlushWithContext(ctx)
}

func (w *Worker) followMap(ctx context.Context) error {
	led := false
	return follow(ctx, w.buckets.kvs[w.cfg.bucketMap()], w.quietTooLong(), func(e jetstream.KeyValueEntry) {
		if e == nil {
			w.post(mapSyncedInput{led})
			return
		}
		led = led || e.Key() == leaderKey
		w.mapBucketChanged(e)
	})
}

// quietTooLong is how long nothing may change in a bucket where a leader, or every
// worker, renews something each HeartbeatInterval. A watch that tells nothing for so
// long is made anew: its consumer may be with a replica that does not follow the
// others any more.
func (w *Worker) quietTooLong() time.Duration { return 2 * w.cfg.LeaseTTL }

// follow tells of everything in a bucket, of nil when all that was there has been
// told, and then of what changes, until ctx or the watch ends, or nothing changes for
// as long as quiet, if that is not 0.
func follow(ctx context.Context, kv jetstream.KeyValue, quiet time.Duration, tell func(jetstream.KeyValueEntry), opts ...jetstream.WatchOpt) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A server that has just started may not answer, and then nobody ever does.
	silence := time.AfterFunc(apiTimeout, cancel)
	defer silence.Stop()
	kw, err := kv.WatchAll(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = kw.Stop() }()
	if len(opts) > 0 {
		silence.Stop() // nothing is told that was there before
	}
	for {
		select {
		case <-ctx.Done():
			return errors.New("the server tells nothing")
		case e, ok := <-kw.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			if quiet > 0 {
				silence.Reset(quiet)
			} else {
				silence.Stop()
			}
			tell(e)
		}
	}
}

func (w *Worker) mapBucketChanged(e jetstream.KeyValueEntry) {
	w.keeper.saw(w.cfg.bucketMap(), e.Revision(), nil)
	switch e.Key() {
	case AssignmentKey:
		if e.Operation() != jetstream.KeyValuePut {
			return // deleted by hand: the workers keep to what they have
		}
		a, err := DecodeAssignment(e.Value())
		if err != nil {
			w.post(badMapInput{e.Revision(), err})
			return
		}
		w.post(mapInput{a, e.Revision()})
	case expectedKey:
		var v expectedValue
		if e.Operation() == jetstream.KeyValuePut {
			var err error
			if v, err = decodeExpected(e.Value()); err != nil {
				w.refuse(recordExpected, e.Key(), err)
				return
			}
		}
		w.post(expectedInput{v.N, e.Revision()})
	case wantedKey:
		var v wantedValue
		if e.Operation() == jetstream.KeyValuePut {
			var err error
			if v, err = decodeWanted(e.Value()); err != nil {
				w.refuse(recordWanted, e.Key(), err)
				return
			}
		}
		w.post(wantedInput{v.Slots, e.Revision()})
	case pinsKey:
		in := pinsInput{rev: e.Revision()}
		if e.Operation() == jetstream.KeyValuePut {
			var err error
			if in.pins, err = decodePins(e.Value()); err != nil {
				w.refuse(recordPins, e.Key(), err)
				return
			}
		}
		w.post(in)
	case layoutKey:
		if e.Operation() == jetstream.KeyValuePut {
			w.settingsChanged(e.Value())
		}
	case leaderKey:
		in := leaderInput{rev: e.Revision()}
		if e.Operation() == jetstream.KeyValuePut {
			v, err := decodeLeader(e.Value())
			in.leader, in.err = Member{v.ID, v.Claim}, err
		}
		w.post(in)
	}
}

func (w *Worker) watchLeases(o watchLeasesEffect) {
	if w.leases != nil {
		w.leases()
		w.leases = nil
	}
	if !o.on {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.leases = cancel
	go w.keepFollowing(ctx, "the leases", func(ctx context.Context) error { return w.followLeases(ctx, o.watch) })
}

// watchNames tells a standby when a stable ID becomes free. It looks by itself,
// too, so a watch that fails costs a moment.
func (w *Worker) watchNames(on bool) {
	if w.names != nil {
		w.names()
		w.names = nil
		w.answerAsStandby(false)
	}
	if !on {
		return
	}
	w.answerAsStandby(true)
	ctx, cancel := context.WithCancel(context.Background())
	w.names = cancel
	go w.keepFollowing(ctx, "the stable IDs", func(ctx context.Context) error {
		return follow(ctx, w.buckets.kvs[w.cfg.bucketIDs()], 0, func(e jetstream.KeyValueEntry) {
			if e != nil && e.Operation() != jetstream.KeyValuePut {
				w.post(nameFreedInput{e.Key()})
			}
		}, jetstream.UpdatesOnly())
	})
}

func (w *Worker) followLeases(ctx context.Context, watch uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := follow(ctx, w.buckets.kvs[w.cfg.bucketLeases()], w.quietTooLong(), func(e jetstream.KeyValueEntry) {
		if e == nil {
			// After the list: it is of this bucket, or of one before it.
			age, err := w.buckets.age(ctx, w.cfg.bucketLeases())
			if err != nil {
				cancel(err)
				return
			}
			w.post(leasesSyncedInput{watch, age})
			return
		}
		w.keeper.saw(w.cfg.bucketLeases(), e.Revision(), nil)
		in := leaseInput{id: e.Key(), rev: e.Revision(), at: e.Created(), deleted: e.Operation() != jetstream.KeyValuePut, watch: watch}
		if !in.deleted {
			in.value, in.err = decodeLease(e.Key(), e.Value())
		}
		w.post(in)
	})
	return cmp.Or(context.Cause(ctx), err)
}

// The rest of the effects.

func (w *Worker) loadWeights() {
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.PrepareTimeout)
	defer cancel()
	var byKey map[string]uint64
	err := w.guard.call("Weights", func() (err error) {
		byKey, err = w.cfg.Weights(ctx)
		return err
	})
	in := weightsInput{err: err}
	if err == nil {
		n := w.layout.finest()
		in.finest, in.keys = make([]uint64, n), make([]uint64, n)
		for k, v := range byKey {
			s := SlotOfKey(n, k)
			in.finest[s] += v
			in.keys[s]++
		}
	}
	w.post(in)
}

func (w *Worker) plan(job *planJob) {
	start := time.Now()
	err := w.guard.call("Strategy", func() (err error) {
		job.result, err = w.cfg.Strategy.Plan(job.problem)
		return err
	})
	job.took = time.Since(start)
	w.post(plannedInput{job, err})
}

func (w *Worker) prepare(e prepareEffect) {
	h, ok := w.handler.(Preparer)
	if !ok {
		w.post(preparedInput{e.division, e.slots, nil})
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.PrepareTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- w.guard.call("Prepare", func() error { return h.Prepare(ctx, Slots{e.division.slots, e.slots}) })
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("preparing %d slots: %w", len(e.slots), ctx.Err())
	}
	w.post(preparedInput{e.division, e.slots, err})
}

func (w *Worker) take(e takeEffect) {
	w.taking <- struct{}{}
	defer func() { <-w.taking }()
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	w.post(takenInput{slot: e.slot, run: e.run, err: w.pull.replace(ctx, e.place, e.retire)})
}

func (w *Worker) emit(e event.Event) {
	w.events.count(e)
	if o, ok := w.handler.(Observer); ok {
		// An event of its panic would be its next one, so it is only counted.
		quiet := guard{w.cfg.Logger, w.events.count}
		_ = quiet.call("Observe", func() error { o.Observe(e); return nil })
	}
	_ = w.nc.Publish(eventSubject(w.cfg.Name, e.Kind), mustJSON(e))
}
