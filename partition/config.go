package partition

import (
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// Config says which keys a group of workers shares, and how. Name, Stream and Subject are
// required; every other zero value stands for the default named with its field. All workers
// of a group must be given the same, but for Identity, Logger and the callbacks.
type Config struct {
	// Name is the group: the prefix of its stable IDs ("defender-7"), buckets and consumers.
	// 1 to 31 lower-case letters, digits and hyphens; required.
	Name string
	// Stream is the JetStream stream, or with Shards what the streams' names begin with.
	// 1 to 64 letters, digits, hyphens and underscores; required. Provision creates them.
	Stream string
	// Subject is what publishers publish to; its "*" tokens are the key.
	// Required: "dc.*.*.completion".
	Subject string
	// Slots is the number of slots that the keys are spread over at first, 1 to 65,536;
	// default 512. Workers should be far fewer than slots. Group.Reshard can double it up to
	// three times, and go back; a worker may be given any of these numbers.
	Slots int
	// Shards is over how many streams the slots are spread, "<Stream>-0" and so on: a divisor
	// of Slots, 1 to 64; default 1, which is the one Stream itself. It can't be changed later.
	// With more than one, publishers call PublishSubject, or the servers have the Mapping. See
	// docs/partition.md, "More than one stream".
	Shards int
	// Source is an existing stream that the messages are taken from; default none: publishers'
	// messages go to Stream. It can't be changed later.
	Source Source

	// Storage bounds what the servers keep.
	Storage Storage
	// Identity is what one worker is; its fields differ from worker to worker.
	Identity Identity
	// Lease sets how soon a failed worker is noticed.
	Lease Lease
	// Rebalance sets when the leader moves slots, and how long a move may take.
	Rebalance Rebalance
	// Delivery sets how long messages and handlers are waited for.
	Delivery Delivery
	// Retry sets what happens to a message whose handler fails; default: it is queued for retry,
	// and becomes a dead letter after five attempts.
	Retry Retry

	// State bounds how a slot's state moves with the slot; see StateMover.
	State StateHandoff

	// Logger gets warnings; default none. Events go to an Observer.
	Logger *slog.Logger

	stalePinCheck time.Duration
}

var groupName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)
var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// silenceCheck is how long a slot may be silent before the server is asked whether a message waits.
// Only what a server has lost is found so late.
func (c *Config) silenceCheck() time.Duration {
	if c.Slots <= manySlots {
		return c.stalePinCheck
	}
	return min(c.stalePinCheck*time.Duration(c.Slots)/manySlots, c.stalePinCheck*longestSilence)
}

// firstSilenceCheck is how long a slot that has just come may be silent. Many that come together
// would otherwise all ask at the same moment, again and again.
func (c *Config) firstSilenceCheck(slot int) time.Duration {
	every := c.silenceCheck()
	if c.Slots <= manySlots {
		return every
	}
	return every/2 + c.spreadOverSlots(slot, every/2)
}

// secondLook is when a silent slot is looked at after a look that has found something wrong, and
// after a reconnect: 2 s later.
func (c *Config) secondLook() time.Duration { return c.stalePinCheck * 2 / 5 }

// spreadOverSlots returns the slot's share of d, so that slots do not ask at the same moment.
func (*Config) spreadOverSlots(slot int, d time.Duration) time.Duration {
	return d * time.Duration(slot%manySlots) / manySlots
}

// resolve fills in the defaults.
func (c Config) resolve() Config {
	defaulted(&c.Slots, 512)
	defaulted(&c.Shards, 1)
	defaulted(&c.stalePinCheck, stalePinCheck)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}

	c.Storage = c.Storage.resolve()
	c.Identity = c.Identity.resolve()
	c.Lease = c.Lease.resolve(c.Storage.Replicas > 1, c.Identity.PoolSize)
	c.Rebalance = c.Rebalance.resolve()
	c.Delivery = c.Delivery.resolve()
	c.Retry = c.Retry.resolve()
	c.State = c.State.resolve()
	return c
}

// validate returns everything that is wrong with a resolved configuration, each with the
// path of the field and what to give.
func (c Config) validate() (layout, error) {
	var f faults
	pattern := c.validateKeys(&f)
	c.Storage.validate(&f)
	c.Identity.validate(&f)
	c.Lease.validate(&f)
	c.Rebalance.validate(&f)
	c.Delivery.validate(&f)
	c.Retry.validate(&f)
	c.State.validate(&f)
	if err := f.err(); err != nil {
		return layout{}, fmt.Errorf("partition: the configuration has faults:\n%w", err)
	}
	return layout{group: c.Name, base: c.Slots, pattern: pattern, stream: c.Stream, shards: c.Shards, source: c.Source.Stream}, nil
}

// validateKeys checks the group's name, its streams, and how keys are spread over them.
func (c Config) validateKeys(f *faults) pattern {
	if !groupName.MatchString(c.Name) {
		f.add("Name is %q: give 1 to 31 lower-case letters, digits and hyphens", c.Name)
	}
	if !streamName.MatchString(c.Stream) {
		f.add("Stream is %q: give 1 to 64 letters, digits, hyphens and underscores", c.Stream)
	}

	p, err := parsePattern(c.Subject)
	if err != nil {
		f.add("Subject: %w", err)
	}
	retry := layout{group: c.Name}.retryPrefix()
	if err == nil && !c.Retry.Disabled && p.overlaps(retry) {
		f.add("Subject is %q: it covers subjects of %s>, where the retry queue is: give one that covers none, such as one that begins with a word of its own", c.Subject, retry)
	}
	dead := layout{group: c.Name}.deadLetterPrefix()
	if err == nil && c.Retry.givesUp() && p.overlaps(dead) {
		f.add("Subject is %q: it covers subjects of %s>, where dead letters are: give one that covers none, such as one that begins with a word of its own", c.Subject, dead)
	}

	c.Source.validate(c, p, f)
	f.within("Slots", c.Slots, record.MaxSlots)
	f.within("Shards", c.Shards, record.MaxShards)
	if c.Shards > 1 && c.Slots > 0 && c.Slots%c.Shards != 0 {
		f.add("Shards is %d: give a number that divides Slots (%d), or change Slots", c.Shards, c.Slots)
	}
	return p
}

// slotCounts returns in how many slots the keys may be divided.
func (c Config) slotCounts() []int { return layout{base: c.Slots}.slotCounts() }

// The buckets of a group.
func (c Config) bucketIDs() string    { return "stable-ids" }
func (c Config) bucketLeases() string { return c.Name + "-heartbeats" }
func (c Config) bucketMap() string    { return c.Name + "-assignments" }

const (
	leaderKey   = "leader"
	expectedKey = "expected"
	wantedKey   = "layout-wanted"
)

// CheckKey reports why a key, written by JoinKey or by hand, can't be one of the
// messages of Config.Subject; nil if it can.
func (c Config) CheckKey(key string) error {
	p, err := parsePattern(c.Subject)
	if err != nil {
		return fmt.Errorf("checking key %q: %w", key, err)
	}
	return p.checkKey(key)
}

// Streams returns the names of the streams with the group's messages, by shard.
func (c Config) Streams() []string { return layout{stream: c.Stream, shards: c.Shards}.streams() }

// PublishSubject returns the subject to publish a message to whose subject is one
// that Config.Subject stands for: the same one, or with Shards the one that its
// stream listens to. It needs Name, Subject and Shards, and asks nobody; the error
// says that the subject is of no key. Who can't call it publishes to the subject
// itself, and leaves the rest to the servers: see Mapping.
func (c Config) PublishSubject(subject string) (string, error) {
	p, err := parsePattern(c.Subject)
	if err != nil {
		return "", fmt.Errorf("finding the stream of %q: %w", subject, err)
	}
	to, err := layout{group: c.Name, pattern: p, shards: c.Shards}.publish(subject)
	if err != nil {
		return "", fmt.Errorf("finding the stream of %q: %w", subject, err)
	}
	return to, nil
}

// Mapping returns the subject mapping that lets publishers know nothing of Shards:
// the servers change the one subject to the other, which names the key's shard. It
// belongs in the configuration of every server of the cluster that publishers
// connect to, in the account's mappings. Both are empty where there is one stream,
// and where Subject is not valid.
//
// Source: NATS documentation, "Subject Mapping and Partitioning".
func (c Config) Mapping() (from, to string) {
	p, err := parsePattern(c.Subject)
	if err != nil || c.Shards <= 1 {
		return "", ""
	}
	return c.Subject, layout{group: c.Name, pattern: p, shards: c.Shards}.mapping()
}

// Sequence returns what Message.Sequence will be of a message that a stream of the
// group has acknowledged to its publisher under a sequence.
func (c Config) Sequence(stream string, inStream uint64) (uint64, error) {
	l := layout{stream: c.Stream, shards: c.Shards}
	for shard, name := range l.streams() {
		if name == stream {
			return l.sequence(shard, inStream), nil
		}
	}
	return 0, fmt.Errorf("stream %q is none of the group's, which are %q", stream, l.streams())
}
