package defender

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// Defender processes completion messages: it is the partition.Handler of the
// fault detection. Each message goes through history, T-chart, statistics,
// verdict, store, alarm, cache, in this order, before it is acknowledged.
type Defender struct {
	config Config
	cache  *cache
	log    *logger

	out        *outbox
	alarms     *announcer
	concluder  *concluder
	maintainer *maintainer
	fencing    fencing
	assignment *assignmentLog // writes the log lines of changed assignments
}

// New returns a defender. Errors name every fault of the configuration.
func New(c Config) (*Defender, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	js, err := jetstream.New(c.Conn)
	if err != nil {
		return nil, fmt.Errorf("defender: %w", err)
	}

	d := &Defender{config: c, cache: newCache(c.Store, c.History, c.CacheBytes), log: &logger{to: c.Logger, version: c.Version}}
	d.out = &outbox{js: js, replicas: c.Replicas, logger: c.Logger}
	d.alarms = &announcer{out: d.out, metrics: c.Metrics, clearAfter: c.ClearAfter, labels: &labels{store: c.Store, logger: c.Logger}}
	d.concluder = newConcluder(c)
	d.fencing = fencing{cache: d.cache, metrics: c.Metrics}
	d.maintainer = &maintainer{
		store: c.Store, fencing: d.fencing, alarms: d.alarms, log: d.log, history: c.History, retention: c.Retention,
	}
	d.assignment = newAssignmentLog(newChamberCount(c.Store), d.log.line)
	c.Metrics.cache(d.CacheStats)
	return d, nil
}

// AssignedChambers returns the number of registered chambers in slots.
func (d *Defender) AssignedChambers(slots partition.Slots) int {
	return d.assignment.chambers.In(slots)
}

// Provision makes the stream of alarms if it is missing. A defender that misses it later makes
// it again.
func (d *Defender) Provision(ctx context.Context) error { return d.out.provision(ctx) }

// readTries is how often a T-chart is read before its message fails.
const readTries = 3

// Handle processes one message. It implements partition.Handler.
func (d *Defender) Handle(ctx context.Context, m partition.Message) error {
	start := time.Now()
	d.config.Metrics.received.Inc()
	returned := false
	defer func() {
		if !returned { // it panics
			d.config.Metrics.failed.Inc()
		}
	}()
	done, err := d.process(ctx, m)
	returned = true
	err = d.blamed(ctx, m, done.Context, err)

	if err != nil {
		d.config.Metrics.failed.Inc()
		if ctx.Err() == nil {
			d.log.line().Warn(fmt.Sprintf("Processing a message for chamber %s failed.", m.Key), "sequence", m.Sequence, "attempt", m.Attempt, "err", err)
		}
		return err
	}

	done.Took = time.Since(start)
	done.Slot, done.Sequence = m.Slot, m.Sequence
	d.config.Metrics.processed(done)
	level := slog.LevelDebug
	if d.assignment.first(m.Slot) {
		// The first message after a slot has moved shows how the move went.
		level = slog.LevelInfo
	}
	if d.config.Logger.Enabled(ctx, level) {
		d.log.line().Log(ctx, level, fmt.Sprintf("Processed message for chamber %s (%.3fs, cache %s)", m.Key, done.Took.Seconds(), hitOrMiss(done.CacheHit)),
			"context", done.Context.ID, "verdict", done.Verdict.State)
	}
	if d.config.Processed != nil {
		d.config.Processed(done)
	}
	return nil
}

// blamed returns the error of an attempt as the worker is to take it: an outage says nothing of
// the context, which must not become a dead letter for it. The store is asked for a write that
// changes nothing. If it refuses that one, too, it is unavailable.
func (d *Defender) blamed(ctx context.Context, m partition.Message, ref ContextRef, err error) error {
	mayBeTheStore := err != nil && ctx.Err() == nil && ref.ID != "" && !errors.Is(err, ErrFenced)
	if !mayBeTheStore {
		return err
	}
	refused := d.config.Store.RaiseFence(ctx, ref.Chamber, fenceOf(m))
	switch {
	case refused == nil:
		return err
	case errors.Is(refused, ErrFenced):
		return d.fencing.checked(ref.Chamber, refused)
	default:
		return partition.Unavailable(err)
	}
}

func fenceOf(m partition.Message) Fence {
	return Fence{MapVersion: m.Fence.Version, ClaimRevision: m.Fence.Claim}
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
		return Processed{}, partition.GiveUp(err)
	}
	ref := completion.Ref()
	if completion.Kind == KindMaintenance {
		return Processed{Context: ref, Verdict: uchart.Verdict{State: uchart.Maintenance}}, d.maintainer.maintain(ctx, m, ref)
	}
	fence := fenceOf(m)
	begunOn := Processed{Context: ref}
	history, err := d.cache.history(ctx, ref, fence)
	if err != nil {
		return begunOn, d.fencing.checked(ref.Chamber, fmt.Errorf("reading the history of %s: %w", ref.Chamber, err))
	}
	blob, err := d.read(ctx, ref)
	if errors.Is(err, ErrNotFound) {
		return Processed{}, partition.GiveUp(err)
	}
	if err != nil {
		return begunOn, err
	}
	chart, verdict, err := d.concluder.conclude(ctx, ref, blob, history)
	if errors.Is(err, errBadTChart) {
		return Processed{}, partition.GiveUp(err)
	}
	if err != nil {
		return begunOn, err
	}
	verdict.Standing = standingAfter(history.rows, ref.ID, verdict, d.config.ClearAfter(ref))
	u, stored, err := d.commit(ctx, fence, NewResult(ref, chart, verdict, time.Now().Add(d.config.Retention)))
	if err != nil {
		return begunOn, err
	}
	if err := d.alarms.notify(ctx, history.rows, u); err != nil {
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
	outcome, err := d.config.Store.Commit(ctx, fence, r)
	if err != nil {
		return UChart{}, false, d.fencing.checked(ref.Chamber, fmt.Errorf("storing the U-chart of %s: %w", ref.TChart(), err))
	}
	d.config.Metrics.writing.Observe(time.Since(begun).Seconds())
	if outcome.Stored || outcome.Identical {
		return r.UChart, outcome.Stored, nil
	}
	u, err := d.config.Store.UChart(ctx, ref.Chamber, ref.ID)
	if err != nil {
		return UChart{}, false, fmt.Errorf("reading the U-chart of %s, which was stored before: %w", ref.TChart(), err)
	}
	d.log.line().Warn("A context came again and is judged differently now; what was stored first stays.",
		"context", ref.TChart().String(), "stored", u.Verdict.State, "now", r.UChart.Verdict.State, "strategy", u.Verdict.Strategy)
	return u, false, nil
}

// CacheStats tells of the histories in memory.
func (d *Defender) CacheStats() CacheStats { return d.cache.stats() }

// read reads a context's T-chart.
func (d *Defender) read(ctx context.Context, ref ContextRef) ([]byte, error) {
	begun := time.Now()
	var blob []byte
	var err error
	for try := 1; try <= readTries; try++ {
		if blob, err = d.config.Store.TChart(ctx, ref.TChart()); err == nil || errors.Is(err, ErrNotFound) || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading T-chart %s: %w", ref.TChart(), err)
	}
	d.config.Metrics.reading.Observe(time.Since(begun).Seconds())
	return blob, nil
}

// Prepare reads the history of the chambers in slots that are about to come. It
// implements partition.Preparer.
func (d *Defender) Prepare(ctx context.Context, slots partition.Slots) error {
	chambers, err := d.config.Store.Chambers(ctx)
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
	chambers, err := d.config.Store.Chambers(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the chambers: %w", err)
	}
	w := make(map[string]uint64, len(chambers))
	for _, c := range chambers {
		w[c.Chamber.String()] = 1
	}
	return w, nil
}

// Observe writes the log lines of membership, planning and handoff. It
// implements partition.Observer.
func (d *Defender) Observe(e event.Event) {
	d.log.claimed(e) // before the others, whose lines carry the stable ID
	d.assignment.observe(e)
	d.log.observe(e)
	if e.Kind == event.DeadLettered {
		d.config.Metrics.dead.Inc()
	}
}
