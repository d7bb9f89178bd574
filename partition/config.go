package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/muster-dev/muster/partition/plan"
)

// maxSlots bounds a layout: one consumer a slot, and a server holds thousands,
// not millions.
const maxSlots = 1 << 16

// Config says what a group of workers shares out and how. Every worker of a
// group must be given the same, but for the Worker, Zone and hook fields. Zero
// values stand for the defaults named with each field.
type Config struct {
	// Name is the group: the prefix of its stable IDs ("defender-7"), buckets
	// and consumers. Lower-case letters, digits and hyphens; required.
	Name string
	// Stream is the JetStream stream, or with Shards what the streams' names begin
	// with; required. Provision makes them.
	Stream string
	// Subject is what publishers publish to; its "*" tokens are the key.
	// Required: "dc.*.*.completion".
	Subject string
	// Slots is the number of slots the keys are divided in at first, 1 to
	// 65,536; default 512. Workers should be far fewer than slots. Group.Reshard
	// can double it up to three times, and go back; a worker may be given any
	// of these numbers.
	Slots int
	// Shards is over how many streams the slots are spread, "<Stream>-0" and so
	// on: a divisor of Slots, 1 to 64; default 1, which is the one Stream itself.
	// It can't be changed later. With more than one, publishers call
	// PublishSubject, or the servers have the Mapping. See docs/partition.md,
	// "More than one stream".
	Shards int
	// Replicas of the streams, their consumers and the buckets: 1 (default), 3
	// or 5.
	Replicas int
	// MaxAge is how long an unprocessed message is kept; default 7 days.
	MaxAge time.Duration
	// MaxBytes limits the stream, or with Shards all of them, each with an equal
	// part. Beyond it publishers get an error (see IsFull) and can publish again
	// later; nothing that is stored is dropped. Default: at most half of the storage
	// that no stream of the servers has reserved, and at most 32 GiB, so that a
	// backlog leaves room for the leases; a limit that the stream has already stays.
	// -1 is no limit: then a backlog that fills the servers' storage stops the group.
	MaxBytes int64
	// Duplicates is the window in which a message ID is recognised again;
	// default 2 minutes.
	Duplicates time.Duration

	// PoolSize is the number of stable IDs; default 200.
	PoolSize int
	// Pod and PodUID tell what holds a stable ID, for people; default: the
	// host's name and a random one.
	Pod, PodUID string
	// WorkerVersion is reported beside them.
	WorkerVersion string
	// Weight is this worker's relative capacity; default 1.
	Weight float64
	// Node is where this worker runs, for those who take nodes away; may be
	// empty.
	Node string
	// Zone is this worker's failure domain; a tie-break of the planner.
	Zone string

	// HeartbeatInterval and LeaseTTL: a worker renews its lease this often
	// (default 2 s) and is dead when it has not for so long (default 6 s, at
	// least three intervals).
	HeartbeatInterval, LeaseTTL time.Duration
	// LeaseMargin is how long before the server lets a lease expire its holder
	// stops trusting it: it covers clock rates and the cancelling of handlers.
	// Default: a quarter of LeaseTTL.
	LeaseMargin time.Duration
	// IDTTL is how long a stable ID outlives its holder; default 30 s.
	IDTTL time.Duration
	// SuspicionGrace is how long a worker goes on without proof that it is
	// connected; a worker whose connection is gone is dead after it and
	// SuspicionMargin, long before its lease ends. Default 500 ms and 150 ms;
	// with replicas, where the proof is a replicated write, 1.5 s and 300 ms.
	// On a server that is part of a cluster, or a leaf node, the proof is a write
	// with one replica, too: the lease is renewed three times within the grace.
	SuspicionGrace, SuspicionMargin time.Duration
	// ProbeInterval is how often the leader looks whether each worker is
	// connected; default 100 ms.
	ProbeInterval time.Duration

	// ColdWindow and PlannedWindow are how long the leader waits for more
	// workers before it plans: at the first start (default 30 s) and when
	// workers join later (default 10 s), counted from the last that joined. A
	// window ends at once when Expected workers are there.
	ColdWindow, PlannedWindow time.Duration
	// LeaveWindow is how long the leader collects workers that leave; default
	// 100 ms.
	LeaveWindow time.Duration
	// RestartGrace is how long the slots of a worker that restarts wait for its
	// successor; default 10 s. See docs/partition.md, "Leave or restart".
	RestartGrace time.Duration
	// Expected returns how many workers there should be, 0 for unknown. It
	// must not block. Default: what Group.Expect said last, unknown before.
	Expected func() int

	// PrepareTimeout bounds Preparer.Prepare; default 5 s.
	PrepareTimeout time.Duration
	// HandoverTimeout bounds how long the old owner of a moving slot may go on
	// with the message it has; then its context is cancelled and the slot is
	// taken. Default 20 s.
	HandoverTimeout time.Duration
	// LeaveTimeout bounds a graceful leave; default 25 s.
	LeaveTimeout time.Duration
	// HandlerTimeout bounds one call of the handler; default none.
	HandlerTimeout time.Duration
	// RetryDelay is the first pause before a failed message is tried again,
	// doubled up to 5 s; default 100 ms.
	RetryDelay time.Duration
	// Retry says whether a failing message is put aside, so that the other keys
	// of its slot go on; default: it is not.
	Retry Retry
	// AckWait is how long the server waits for a silent worker before it
	// delivers a message again, the last resort behind the leader's take-over;
	// default 30 s, at least 1 s.
	AckWait time.Duration

	// Strategy plans; default plan.Sticky().
	Strategy plan.Strategy
	// Weights returns the weight of each key, "tool001:chamber1" -> 120; keys
	// it does not name weigh nothing. Default: every slot weighs the same.
	Weights func(ctx context.Context) (map[string]uint64, error)
	// WeightsInterval is how often the leader asks for the weights; default 1
	// minute.
	WeightsInterval time.Duration
	// TuneAbove is from what worst load over the mean slots move for no other
	// reason than changed weights, in two readings of them in a row: more than
	// 1.05, default 1.15; +Inf means never.
	TuneAbove float64

	// Logger gets warnings; default none. Events go to an Observer.
	Logger *slog.Logger

	ghostCheck time.Duration
}

var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)
var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func defaulted[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// resolve fills in the defaults.
func (c Config) resolve() Config {
	defaulted(&c.Slots, 512)
	defaulted(&c.Shards, 1)
	defaulted(&c.Replicas, 1)
	defaulted(&c.MaxAge, 7*24*time.Hour)
	defaulted(&c.Duplicates, 2*time.Minute)
	defaulted(&c.PoolSize, 200)
	defaulted(&c.Weight, 1)
	defaulted(&c.HeartbeatInterval, 2*time.Second)
	defaulted(&c.LeaseTTL, 6*time.Second)
	defaulted(&c.LeaseMargin, c.LeaseTTL/4)
	defaulted(&c.IDTTL, 30*time.Second)
	if c.Replicas > 1 {
		defaulted(&c.SuspicionGrace, 1500*time.Millisecond)
		defaulted(&c.SuspicionMargin, 300*time.Millisecond)
	}
	defaulted(&c.SuspicionGrace, 500*time.Millisecond)
	defaulted(&c.SuspicionMargin, 150*time.Millisecond)
	defaulted(&c.ProbeInterval, 100*time.Millisecond)
	defaulted(&c.ColdWindow, 30*time.Second)
	defaulted(&c.PlannedWindow, 10*time.Second)
	defaulted(&c.LeaveWindow, 100*time.Millisecond)
	defaulted(&c.RestartGrace, 10*time.Second)
	defaulted(&c.PrepareTimeout, 5*time.Second)
	defaulted(&c.HandoverTimeout, 20*time.Second)
	defaulted(&c.LeaveTimeout, 25*time.Second)
	defaulted(&c.RetryDelay, 100*time.Millisecond)
	c.Retry = c.Retry.resolve()
	defaulted(&c.AckWait, 30*time.Second)
	defaulted(&c.ghostCheck, ghostCheck)
	defaulted(&c.WeightsInterval, time.Minute)
	defaulted(&c.TuneAbove, 1.15)
	if c.Strategy == nil {
		c.Strategy = plan.Sticky()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	// With replicas only a write proves more than that one server answers, so
	// the lease itself is renewed within the grace.
	if c.Replicas > 1 && c.HeartbeatInterval > c.SuspicionGrace/3 {
		c.HeartbeatInterval = c.SuspicionGrace / 3
	}
	return c
}

// validate returns every fault of a resolved configuration, each with the field
// and what to do.
func (c Config) validate() (layout, error) {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !groupName.MatchString(c.Name) {
		fault("Name is %q: give 1 to 31 lower-case letters, digits and hyphens", c.Name)
	}
	if !streamName.MatchString(c.Stream) {
		fault("Stream is %q: give 1 to 64 letters, digits, hyphens and underscores", c.Stream)
	}
	p, err := parsePattern(c.Subject)
	if err != nil {
		fault("Subject: %w", err)
	}
	if retry := (layout{group: c.Name}).retryPrefix(); err == nil && c.Retry.Enabled && p.overlaps(retry) {
		fault("Subject is %q: it covers subjects of %s>, where the retry queue is: give one that covers none, such as one that begins with a word of its own", c.Subject, retry)
	}
	within := func(name string, v, low, high int) {
		if v < low || v > high {
			fault("%s is %d: give %d to %d", name, v, low, high)
		}
	}
	within("Slots", c.Slots, 1, maxSlots)
	within("Shards", c.Shards, 1, maxShards)
	if c.Shards > 1 && c.Slots > 0 && c.Slots%c.Shards != 0 {
		fault("Shards is %d: give a number that divides Slots (%d), or change Slots", c.Shards, c.Slots)
	}
	within("PoolSize", c.PoolSize, 1, 100000)
	if c.MaxBytes < -1 {
		fault("MaxBytes is %d: give -1 for no limit, 0 for the default, or a number of bytes", c.MaxBytes)
	}
	if c.Replicas != 1 && c.Replicas != 3 && c.Replicas != 5 {
		fault("Replicas is %d: give 1, 3 or 5", c.Replicas)
	}
	if c.Weight < 0 || c.Weight != c.Weight || c.Weight > 1e6 {
		fault("Weight is %v: give more than 0, up to a million", c.Weight)
	}
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			fault("%s is %v: give a positive duration", name, d)
		}
	}
	positive("HeartbeatInterval", c.HeartbeatInterval)
	positive("SuspicionGrace", c.SuspicionGrace)
	positive("SuspicionMargin", c.SuspicionMargin)
	positive("ProbeInterval", c.ProbeInterval)
	positive("ColdWindow", c.ColdWindow)
	positive("PlannedWindow", c.PlannedWindow)
	positive("LeaveWindow", c.LeaveWindow)
	positive("RestartGrace", c.RestartGrace)
	positive("PrepareTimeout", c.PrepareTimeout)
	positive("HandoverTimeout", c.HandoverTimeout)
	positive("LeaveTimeout", c.LeaveTimeout)
	positive("RetryDelay", c.RetryDelay)
	positive("MaxAge", c.MaxAge)
	positive("WeightsInterval", c.WeightsInterval)
	if !(c.TuneAbove > 1.05) {
		fault("TuneAbove is %v: give more than 1.05, which is how even plans are, or +Inf", c.TuneAbove)
	}
	if c.Retry.Enabled {
		positive("Retry.Delay", c.Retry.Delay)
		within("Retry.Tries", c.Retry.Tries, 1, 1000)
		within("Retry.PerKey", c.Retry.PerKey, 1, 10_000_000)
		within("Retry.PerSlot", c.Retry.PerSlot, 1, 10_000_000)
		within("Retry.Attempts", c.Retry.Attempts, 0, 1_000_000)
		if c.Retry.MaxDelay < c.Retry.Delay {
			fault("Retry.MaxDelay is %v: give at least Retry.Delay (%v)", c.Retry.MaxDelay, c.Retry.Delay)
		}
	}
	if c.HandlerTimeout < 0 {
		fault("HandlerTimeout is %v: give 0 for none, or a positive duration", c.HandlerTimeout)
	}
	if c.LeaseTTL < time.Second || c.LeaseTTL < 3*c.HeartbeatInterval {
		fault("LeaseTTL is %v: give at least 1s and three times HeartbeatInterval (%v)", c.LeaseTTL, c.HeartbeatInterval)
	}
	if c.LeaseMargin <= 0 || c.LeaseMargin > c.LeaseTTL/2 {
		fault("LeaseMargin is %v: give more than 0, at most half of LeaseTTL (%v)", c.LeaseMargin, c.LeaseTTL)
	}
	if c.IDTTL < c.LeaseTTL {
		fault("IDTTL is %v: a name must outlive its lease, give at least LeaseTTL (%v)", c.IDTTL, c.LeaseTTL)
	}
	if c.AckWait < time.Second {
		fault("AckWait is %v: give at least 1s", c.AckWait)
	}
	if err := errors.Join(errs...); err != nil {
		return layout{}, fmt.Errorf("partition: the configuration has faults:\n%w", err)
	}
	return layout{group: c.Name, base: c.Slots, pattern: p, stream: c.Stream, shards: c.Shards}, nil
}

// divisions returns in how many slots the keys may be divided.
func (c Config) divisions() []int { return layout{base: c.Slots}.divisions() }

// The buckets of a group.
func (c Config) bucketIDs() string    { return "stable-ids" }
func (c Config) bucketLeases() string { return c.Name + "-heartbeats" }
func (c Config) bucketMap() string    { return c.Name + "-assignments" }

// AssignmentKey is the key of the assignment map in the bucket
// "<name>-assignments".
const AssignmentKey = "assignment-map"

const (
	leaderKey   = "leader"
	expectedKey = "expected"
	wantedKey   = "layout-wanted"
)
