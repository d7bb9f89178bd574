package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
)

// Group is a handle on a group of workers by its name, for all that is no worker: it
// creates the group's streams and buckets, shows the group, and changes it. It keeps no
// state beside the connection, so that a second handle of the same group is as good, and
// several goroutines may use one. What it asks for is stored or sent at once, and the
// workers act on it when they see it.
//
// Errors of a group that does not exist wrap jetstream.ErrBucketNotFound.
type Group struct {
	nc   *nats.Conn
	name string
}

// Open returns a handle on the group with a name. It asks no server, so the group need
// not exist.
func Open(nc *nats.Conn, name string) *Group { return &Group{nc: nc, name: name} }

// Provision creates the streams, the buckets and one consumer per slot, as far as they
// are missing; it can be repeated, by several workers at once. An existing stream that
// spreads its keys over slots in another way is an error, and is left as it is.
// Config.Name may be empty and must be the group's otherwise.
//
// If the group exists, MaxAge, MaxBytes and Duplicates that are set change its streams,
// and its record, to these. Other settings in which workers must agree change only while
// no worker is there; otherwise the error is a *SettingsError, which names each. Settings
// that are not set stay what they are in the group.
func (g *Group) Provision(ctx context.Context, cfg Config) error {
	defaulted(&cfg.Name, g.name)
	if cfg.Name != g.name {
		return fmt.Errorf("provisioning %s: the configuration is of group %q: leave Config.Name empty, or open that group", g.name, cfg.Name)
	}
	_, err := provision(ctx, g.nc, cfg)
	return err
}

// Config returns what the group was provisioned with: Name, Stream, Subject, Slots,
// Shards, Source, whether the retry queue is on, and the settings in which its workers agree. It
// is what a publisher needs.
func (g *Group) Config(ctx context.Context) (Config, error) {
	return provisionedConfig(ctx, g.nc, g.name)
}

// CheckMapping reports whether what is published to Config.Subject gets to the stream of
// its key, for one key of each shard, as the server sees it that the connection is to:
// nil if so, a *MappingError if not. Nothing is stored, and subscribers of the subject
// that are no streams see a message without data. With one stream it is always nil.
func (g *Group) CheckMapping(ctx context.Context) error {
	cfg, err := g.Config(ctx)
	if err != nil {
		return err
	}
	return checkMapping(ctx, g.nc, cfg)
}

// Inspect reads the group's buckets and streams and asks for its standbys, which takes a
// quarter of a second. Methods of the View tell what it means, and preview what the
// leader would do.
func (g *Group) Inspect(ctx context.Context) (*View, error) {
	v, err := look(ctx, g.nc, g.name)
	if err != nil {
		return nil, fmt.Errorf("looking at group %s: %w", g.name, err)
	}
	return v, nil
}

// Map returns the assignment map, nil before the first.
func (g *Group) Map(ctx context.Context) (*report.Map, error) {
	return latestMap(ctx, g.nc, g.name)
}

// WatchMap sends the assignment map that there is, if any, and then each that is written,
// until ctx ends and the channel is closed.
func (g *Group) WatchMap(ctx context.Context) (<-chan *report.Map, error) {
	return watchMap(ctx, g.nc, g.name)
}

// Leases returns what the workers' leases say, by ascending ID.
func (g *Group) Leases(ctx context.Context) ([]report.Lease, error) {
	return leasesOf(ctx, g.nc, g.name)
}

// Standbys asks for the workers that wait for a stable ID, and returns those that
// answered within a quarter of a second, by pod.
func (g *Group) Standbys(ctx context.Context) ([]report.Standby, error) {
	return standbys(ctx, g.nc, g.name)
}

// Events tells of the events that a query selects, in the order in which the server had
// them, until all that are kept have been told, or with event.Query.Follow until ctx ends,
// which is no error then. An error of tell ends it and is returned. Events are kept for a
// day, and at most 64 MiB of them.
func (g *Group) Events(ctx context.Context, q event.Query, tell func(event.Event) error) error {
	return readEvents(ctx, g.nc, g.name, q, tell)
}

// EventSubject is where the group's workers publish their events, as JSON: the last
// token is the kind.
func (g *Group) EventSubject() string { return eventSubjects(g.name) }

// RetryQueue returns what is in the retry queue; nothing if the group has none.
func (g *Group) RetryQueue(ctx context.Context) (RetryQueue, error) {
	return readRetryQueue(ctx, g.nc, g.name)
}

// Expect tells the workers how many of them there should be, 0 for unknown, so that a
// window for joining workers ends as soon as they are there. It is for the one who
// decides the number: a controller that sees the replicas of a Deployment, or a person.
func (g *Group) Expect(ctx context.Context, n int) error {
	return expect(ctx, g.nc, g.name, n)
}

// Drain asks the workers that who selects to give their slots away and to take none
// until a time; the zero time ends that. It returns how many slots each of them still
// holds, by stable ID; call it again to see their progress. An error that wraps ErrSilent
// names those that did not answer; they are not in the result.
func (g *Group) Drain(ctx context.Context, who func(report.Lease) bool, until time.Time) (map[string]int, error) {
	return drain(ctx, g.nc, g.name, who, until)
}

// Override keeps slots on workers, each in place of an earlier override of its slot.
// Fields that are not set are filled in: Slot from Key, At from the clock. A key or slot
// that the group can't have is an ErrNoSuchSlot.
func (g *Group) Override(ctx context.Context, overrides ...Override) error {
	return setOverrides(ctx, g.nc, g.name, overrides...)
}

// Overrides returns the overrides, by ascending slot.
func (g *Group) Overrides(ctx context.Context) ([]Override, error) {
	return overridesOf(ctx, g.nc, g.name)
}

// RemoveOverrides removes the overrides of slots. If one of them has none, nothing is
// removed, and the error is an ErrNotOverridden that names all such.
func (g *Group) RemoveOverrides(ctx context.Context, slots ...int) error {
	return removeOverrides(ctx, g.nc, g.name, slots...)
}

// Reshard asks the workers to spread their keys over another number of slots: what the
// group was provisioned with, or that doubled up to three times. They work on meanwhile;
// the change begins when all of them are there and no slot moves. Asking again for the
// same number changes nothing; the error of a number that can't be is a *ReshardError.
func (g *Group) Reshard(ctx context.Context, slots int) error {
	return reshard(ctx, g.nc, g.name, slots)
}

// Resharding returns over how many slots the keys are spread, and how far a change of
// that is.
func (g *Group) Resharding(ctx context.Context) (Resharding, error) {
	return reshardingOf(ctx, g.nc, g.name)
}

// DeadLetters returns up to limit dead letters by ascending number, beginning with the number
// from; 0 is the first. It is empty for a group that has none. What no worker has written is
// listed with the reason in Err, and no Attempts.
func (g *Group) DeadLetters(ctx context.Context, from uint64, limit int) ([]DeadLetter, error) {
	l, err := openLetters(ctx, g.nc, g.name)
	if err != nil {
		return nil, fmt.Errorf("reading the dead letters of group %s: %w", g.name, err)
	}
	return l.list(ctx, from, limit)
}

// Requeue publishes the message of a dead letter again, behind the others of its key, and
// removes the dead letter, which it returns. The new message has a sequence of its own. Of
// repeated calls one publishes, within Storage.Duplicates. The error of a number that is not
// there wraps jetstream.ErrMsgNotFound.
func (g *Group) Requeue(ctx context.Context, number uint64) (DeadLetter, error) {
	l, err := openLetters(ctx, g.nc, g.name)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("publishing a dead letter of group %s again: %w", g.name, err)
	}
	return l.requeue(ctx, number)
}
