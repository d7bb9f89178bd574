package defender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/tchart"
)

// Judge concludes on a chart from the chamber's earlier ones. It is a pure
// function: judging again gives the same verdict.
type Judge func(history []uchart.Point, chart *uchart.Chart) uchart.Verdict

// Strategies concludes like [Judge], by what applies to the context.
type Strategies interface {
	Judge(ref ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict
}

// Config says how a Defender works. Zero values stand for the defaults named
// with each field.
type Config struct {
	// Store keeps everything; required.
	Store Store
	// Conn carries alarms and dead letters; required.
	Conn *nats.Conn
	// Replicas is how many replicas the streams of alarms and dead letters have when
	// Provision makes them; default 1.
	Replicas int
	// Judge concludes on charts; required unless Strategies is set.
	Judge Judge
	// Strategies concludes on charts by the strategy of chamber and recipe, in place
	// of Judge.
	Strategies Strategies
	// ClearAfter returns how many contexts in a row that aren't flagged clear the
	// alarm of a chamber and recipe; default 3.
	ClearAfter func(ContextRef) int
	// History is how many earlier contexts a verdict rests on; default 100.
	History int
	// CacheBytes is about how much memory the histories of chambers may take; default
	// 512 MiB.
	CacheBytes int64
	// MaxPoints is the largest T-chart that is worked on, in rows times columns, time
	// and step counted as columns; larger ones are dead letters. Default 8,388,608.
	MaxPoints int
	// Retention is how long U-charts are kept; default 365 days.
	Retention time.Duration
	// MaxAttempts is how often a context is tried before it becomes
	// a dead letter; default 3.
	MaxAttempts int
	// Retry says that messages that fail are queued for retry
	// (partition.Config.Retry). Then an attempt that ends with an error does not
	// count for MaxAttempts, one that kills its defender does, and a context that
	// continues to fail is dead-lettered after the last attempt of package partition.
	Retry bool
	// Turns has room for as many T-charts as are decoded and judged at a time; those
	// beyond wait. With more of them at work than there are processors they would
	// only take these from each other, and from what renews the defender's lease.
	// Several defenders in one process are given the same. Default: room for as many
	// as Go uses processors.
	Turns chan struct{}
	// Processed, if set, is told of each context that was stored.
	Processed func(Processed)
	// Version is the build's, for the log. Default: as Go's build information has it.
	Version string
	// Logger gets the log lines; default none.
	Logger *slog.Logger
	// Metrics counts; default: not counted.
	Metrics *Metrics
}

// Processed tells of one context that was processed.
type Processed struct {
	Context  ContextRef
	Sequence uint64 // of the message in the stream
	Slot     int
	CacheHit bool // the history was in memory
	Verdict  uchart.Verdict
	Stored   bool // false: it had been stored before
	Took     time.Duration
}

// Defender processes completion messages: it is the partition.Handler of the
// fault detection. Each message goes through history, T-chart, statistics,
// verdict, store, alarm, cache, in this order, before it is acknowledged.
type Defender struct {
	c     Config
	out   *outbox
	cache cache
	name  worker
	// assignment writes the log lines of changed assignments.
	assignment *assignmentLog
	// scratch holds what decoding and computing a T-chart can use again.
	scratch sync.Pool
}

type scratch struct {
	decoder    tchart.Decoder
	trace      tchart.Trace
	calculator uchart.Calculator
}

// New returns a defender. Errors name every fault of the configuration.
func New(c Config) (*Defender, error) {
	var errs []error
	if c.Store == nil {
		errs = append(errs, errors.New("no Store is given"))
	}
	if c.Conn == nil {
		errs = append(errs, errors.New("no Conn is given"))
	}
	if c.Judge == nil && c.Strategies == nil {
		errs = append(errs, errors.New("no Judge and no Strategies are given"))
	}
	if c.CacheBytes < 0 {
		errs = append(errs, fmt.Errorf("field CacheBytes is %d, want 0 for the default or more", c.CacheBytes))
	}
	if c.MaxPoints < 0 {
		errs = append(errs, fmt.Errorf("field MaxPoints is %d, want 0 for the default or more", c.MaxPoints))
	}
	if c.Turns != nil && cap(c.Turns) == 0 {
		errs = append(errs, errors.New("field Turns has no room: give a channel with a buffer, or none"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("defender: the configuration has faults:\n%w", err)
	}
	if c.History == 0 {
		c.History = 100
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 512 << 20
	}
	if c.MaxPoints == 0 {
		c.MaxPoints = 1 << 23
	}
	if c.Turns == nil {
		c.Turns = make(chan struct{}, runtime.GOMAXPROCS(0))
	}
	if c.Retention == 0 {
		c.Retention = 365 * 24 * time.Hour
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 3
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Version == "" {
		c.Version = buildVersion()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	js, err := jetstream.New(c.Conn)
	if err != nil {
		return nil, fmt.Errorf("defender: %w", err)
	}
	d := &Defender{c: c, out: &outbox{js: js, replicas: c.Replicas, logger: c.Logger}, cache: newCache(c.Store, c.History, c.CacheBytes)}
	d.scratch.New = func() any { return &scratch{decoder: tchart.Decoder{MaxPoints: c.MaxPoints}} }
	d.assignment = newAssignmentLog(newChamberCount(c.Store), d.log)
	c.Metrics.cache(d.CacheStats)
	return d, nil
}

// buildVersion returns the version of the program's main module, "(devel)" for one
// that was built from a checkout without version control information.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

// AssignedChambers returns the number of registered chambers in slots.
func (d *Defender) AssignedChambers(slots partition.Slots) int {
	return d.assignment.chambers.In(slots)
}

// Provision makes the streams of alarms and dead letters as far as they are missing.
// A defender that misses one later makes it again.
func (d *Defender) Provision(ctx context.Context) error { return d.out.provision(ctx) }

// readTries is how often a T-chart is read before its message fails.
const readTries = 3

// returnTimeout bounds a write that takes back an attempt, returnFor the time for
// which that is tried again.
const (
	returnTimeout = 2 * time.Second
	returnFor     = 2 * time.Minute
)

// Handle processes one message. It implements partition.Handler.
func (d *Defender) Handle(ctx context.Context, m partition.Message) error {
	start := time.Now()
	d.c.Metrics.received.Inc()
	returned := false
	defer func() {
		// The attempt stays counted, like that of a process that has died of it.
		if !returned {
			d.c.Metrics.failed.Inc()
		}
	}()
	done, err := d.process(ctx, m)
	returned = true
	if err != nil && (d.c.Retry || ctx.Err() != nil || errors.Is(err, ErrFenced)) && done.Context.ID != "" {
		d.returnAttempt(ctx, done.Context)
	}
	if err != nil {
		d.c.Metrics.failed.Inc()
		if ctx.Err() == nil {
			d.log().Warn(fmt.Sprintf("Processing a message for chamber %s failed.", m.Key), "sequence", m.Sequence, "attempt", m.Attempt, "err", err)
		}
		return err
	}
	done.Took = time.Since(start)
	done.Slot, done.Sequence = m.Slot, m.Sequence
	d.c.Metrics.processed(done)
	level := slog.LevelDebug
	if d.assignment.first(m.Slot) {
		// The first message after a slot has moved shows how the move went.
		level = slog.LevelInfo
	}
	if d.c.Logger.Enabled(ctx, level) {
		d.log().Log(ctx, level, fmt.Sprintf("Processed message for chamber %s (%.3fs, cache %s)", m.Key, done.Took.Seconds(), hitOrMiss(done.CacheHit)),
			"context", done.Context.ID, "verdict", done.Verdict.State)
	}
	if d.c.Processed != nil {
		d.c.Processed(done)
	}
	return nil
}

// Abandon puts a message aside that goes on failing. It implements
// partition.Abandoner.
func (d *Defender) Abandon(ctx context.Context, m partition.Message, failure error) error {
	if errors.Is(failure, ErrFenced) {
		return failure // the message has another owner, or its own has yet to get a later fence
	}
	return d.deadLetter(ctx, m, fmt.Errorf("%d attempts failed, the last one: %w", m.Attempt, failure))
}

// returnAttempt takes back an attempt that was interrupted from outside, or by a fence
// rejection, or failed for what may pass: it says nothing against the context, which must not end as a
// dead letter for it.
// A store that can't take it now, on the very machine whose overload interrupted
// the attempt, is tried again while others go on with the context.
func (d *Defender) returnAttempt(ctx context.Context, ref ContextRef) {
	ctx = context.WithoutCancel(ctx)
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, returnTimeout)
		defer cancel()
		return d.c.Store.ReturnAttempt(ctx, ref.Chamber, ref.ID)
	}
	err := try()
	if err == nil {
		return
	}
	go func() {
		for end := time.Now().Add(returnFor); err != nil && time.Now().Before(end); err = try() {
			time.Sleep(returnTimeout / 4)
		}
		if err != nil {
			d.log().Warn("An interrupted attempt stays counted.", "context", ref.TChart().String(), "err", err)
		}
	}()
}

func hitOrMiss(hit bool) string {
	if hit {
		return "hit"
	}
	return "miss"
}

func (d *Defender) process(ctx context.Context, m partition.Message) (Processed, error) {
	completion, err := ParseCompletion(m.Data)
	if err == nil && completion.Ref().Chamber.String() != m.Key {
		err = fmt.Errorf("its chamber is %s, its subject is that of %s", completion.Ref().Chamber, m.Key)
	}
	if err != nil {
		return Processed{}, d.bury(ctx, m, err)
	}
	ref := completion.Ref()
	if completion.Kind == KindMaintenance {
		return Processed{Context: ref, Verdict: uchart.Verdict{State: uchart.Maintenance}}, d.maintain(ctx, m, ref)
	}
	fence := Fence{MapVersion: m.Fence.Version, ClaimRevision: m.Fence.Claim}
	begunOn := Processed{Context: ref}
	tries, err := d.c.Store.Attempt(ctx, ref.Chamber, ref.ID, time.Now().Add(7*24*time.Hour))
	if err != nil {
		// It may have been counted. Where it was not, a context gets one try more.
		return begunOn, err
	}
	if tries > d.c.MaxAttempts {
		// Others may have made the attempts, and this worker may not be the owner any
		// more: a dead letter needs a valid fence, like any result.
		if err := d.c.Store.RaiseFence(ctx, ref.Chamber, fence); err != nil {
			return begunOn, d.fenced(ref.Chamber, fmt.Errorf("dead-lettering %s: %w", ref.TChart(), err))
		}
		return Processed{}, d.bury(ctx, m, fmt.Errorf("%d attempts failed, panicked or killed their defender", tries-1))
	}
	history, err := d.cache.history(ctx, ref, fence)
	if err != nil {
		return begunOn, d.fenced(ref.Chamber, fmt.Errorf("reading the history of %s: %w", ref.Chamber, err))
	}
	blob, err := d.read(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		return begunOn, d.bury(ctx, m, err)
	}
	if err != nil {
		return begunOn, err
	}
	chart, verdict, err := d.conclude(ctx, ref, blob, history)
	if errors.Is(err, errBadTChart) {
		return begunOn, d.bury(ctx, m, err)
	}
	if err != nil {
		return begunOn, err
	}
	verdict.Standing = standingAfter(history.rows, ref.ID, verdict, d.clearAfter(ref))
	u, stored, err := d.commit(ctx, fence, NewResult(ref, chart, verdict, time.Now().Add(d.c.Retention)))
	if err != nil {
		return begunOn, err
	}
	if err := d.notify(ctx, history.rows, u); err != nil {
		return begunOn, err
	}
	d.cache.add(u, fence)
	return Processed{Context: ref, CacheHit: history.hit, Verdict: u.Verdict, Stored: stored}, nil
}

// commit stores a result and returns what is stored of the context now: what was
// first stored stays, even if it was judged by other rules than those of today, and
// it is that which alarms and later contexts go by.
func (d *Defender) commit(ctx context.Context, fence Fence, r Result) (UChart, bool, error) {
	begun := time.Now()
	ref := r.UChart.Context
	outcome, err := d.c.Store.Commit(ctx, fence, r)
	if err != nil {
		return UChart{}, false, d.fenced(ref.Chamber, fmt.Errorf("storing the U-chart of %s: %w", ref.TChart(), err))
	}
	d.c.Metrics.writing.Observe(time.Since(begun).Seconds())
	if outcome.Stored || outcome.Identical {
		return r.UChart, outcome.Stored, nil
	}
	u, err := d.c.Store.UChart(ctx, ref.Chamber, ref.ID)
	if err != nil {
		return UChart{}, false, fmt.Errorf("reading the U-chart of %s, which was stored before: %w", ref.TChart(), err)
	}
	d.log().Warn("A context came again and is judged differently now; what was stored first stays.",
		"context", ref.TChart().String(), "stored", u.Verdict.State, "now", r.UChart.Verdict.State, "strategy", u.Verdict.Strategy)
	return u, false, nil
}

// CacheStats tells of the histories in memory.
func (d *Defender) CacheStats() CacheStats { return d.cache.stats() }

func (d *Defender) judge(ref ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict {
	if d.c.Strategies != nil {
		return d.c.Strategies.Judge(ref, history, chart)
	}
	return d.c.Judge(history, chart)
}

// fenced drops what is cached of a chamber that a newer owner has.
func (d *Defender) fenced(c Chamber, err error) error {
	if errors.Is(err, ErrFenced) {
		d.cache.drop(c)
		d.c.Metrics.fenceRejections.Inc()
	}
	return err
}

var errBadTChart = errors.New("the T-chart can't be used")

// read reads a context's T-chart.
func (d *Defender) read(ctx context.Context, ref ContextRef) ([]byte, error) {
	begun := time.Now()
	var blob []byte
	var err error
	for try := 1; try <= readTries; try++ {
		if blob, err = d.c.Store.TChart(ctx, ref.TChart()); err == nil || errors.Is(err, ErrNotFound) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading T-chart %s: %w", ref.TChart(), err)
	}
	d.c.Metrics.reading.Observe(time.Since(begun).Seconds())
	return blob, nil
}

// compute decodes a T-chart and computes its statistics.
func (s *scratch) compute(blob []byte) (*uchart.Chart, error) {
	if err := s.decoder.Decode(blob, &s.trace); err != nil {
		return nil, err
	}
	return s.calculator.Compute(&s.trace)
}

// conclude decodes a T-chart, computes its statistics and judges them, when it is
// its turn: all that is done between is the processor's work.
func (d *Defender) conclude(ctx context.Context, ref ContextRef, blob []byte, history past) (*uchart.Chart, uchart.Verdict, error) {
	select {
	case d.c.Turns <- struct{}{}:
	case <-ctx.Done():
		return nil, uchart.Verdict{}, ctx.Err()
	}
	defer func() { <-d.c.Turns }()
	begun := time.Now()
	s := d.scratch.Get().(*scratch)
	chart, err := s.compute(blob)
	d.scratch.Put(s) // not after a panic: what it holds is half done then
	if err != nil {
		return nil, uchart.Verdict{}, fmt.Errorf("%w: %s: %w", errBadTChart, ref.TChart(), err)
	}
	d.c.Metrics.calculating.Observe(time.Since(begun).Seconds())
	begun = time.Now()
	verdict := d.judge(ref, history.points, chart)
	d.c.Metrics.judging.Observe(time.Since(begun).Seconds())
	return chart, verdict, nil
}

// deadSubject is where messages go that can't be processed.
func deadSubject(c Chamber) string { return "dc-dead." + c.Tool + "." + c.Name }

// bury puts a message aside that can't be processed, and only then removes it
// from the stream.
func (d *Defender) bury(ctx context.Context, m partition.Message, why error) error {
	if err := d.deadLetter(ctx, m, why); err != nil {
		return err
	}
	return partition.Discard(why)
}

// deadID tells a dead letter from all others, so that one that is written twice is
// stored once. The sequence alone is not enough: a stream that was made again gives it
// to another message.
func deadID(m partition.Message) string {
	return fmt.Sprintf("dead-%d-%d", m.Sequence, m.Published.UnixNano())
}

func (d *Defender) deadLetter(ctx context.Context, m partition.Message, why error) error {
	chamber, err := ParseChamber(m.Key)
	if err != nil {
		chamber = Chamber{Tool: "unknown", Name: "unknown"}
	}
	msg := &nats.Msg{Subject: deadSubject(chamber), Data: m.Data, Header: nats.Header{}}
	msg.Header.Set(headerError, oneLine(why.Error()))
	msg.Header.Set(headerSubject, m.Subject)
	msg.Header.Set(nats.MsgIdHdr, deadID(m))
	if err := d.out.publish(ctx, msg); err != nil {
		return fmt.Errorf("putting message %d aside (%w): %w", m.Sequence, why, err)
	}
	d.c.Metrics.dead.Inc()
	d.log().Error(fmt.Sprintf("A message for chamber %s can't be processed and was dead-lettered at %s.", m.Key, msg.Subject), "sequence", m.Sequence, "err", why)
	return nil
}

// Prepare reads the history of the chambers in slots that are about to come. It
// implements partition.Preparer.
func (d *Defender) Prepare(ctx context.Context, slots partition.Slots) error {
	chambers, err := d.c.Store.Chambers(ctx)
	if err != nil {
		return fmt.Errorf("warming the cache for %d slots: %w", len(slots.Slots), err)
	}
	var mine []Chamber
	for _, c := range chambers {
		if slots.Has(c.Chamber.Tool, c.Chamber.Name) {
			mine = append(mine, c.Chamber)
		}
	}
	return d.cache.warm(ctx, mine)
}

// Released forgets the chambers of slots that are gone. It implements
// partition.Releaser.
func (d *Defender) Released(slots partition.Slots) {
	d.cache.dropIf(func(c Chamber) bool { return slots.Has(c.Tool, c.Name) })
}

// Weights returns each chamber's weight for planning: every chamber counts the
// same, so that defenders have equally many.
func (d *Defender) Weights(ctx context.Context) (map[string]uint64, error) {
	chambers, err := d.c.Store.Chambers(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the chambers: %w", err)
	}
	w := make(map[string]uint64, len(chambers))
	for _, c := range chambers {
		w[c.Chamber.String()] = 1
	}
	return w, nil
}
