// Package partition lets a changing set of workers share out the keys of a NATS
// JetStream stream: each key has one owner at a time, its messages are processed
// in order, and nothing is lost when workers join, leave or die.
//
// A key is what the wildcards of a subject stand for: with the subject
// "dc.*.*.completion" the key of "dc.tool001.chamber1.completion" is
// "tool001:chamber1". Keys are divided in slots by a hash, and slots are what
// workers own. The stream itself does the division, by a subject transform, so
// publishers know nothing of it.
//
// # Writing a worker
//
// A worker needs few names. Describe the group with a [Config]: Name, Stream and Subject, and
// leave the rest to the defaults. Implement [Handler], or use [HandlerFunc]. [New] returns a
// [Worker], and its Run joins the group, works until its context ends, and hands its slots off.
// New takes the connection and the configuration, not a Group: the configuration names the
// group, and a worker needs nothing else of it.
//
// A handler gets a [Message]. It returns nil to acknowledge it, an error to have it tried
// again, and an error made with [Discard] to remove it. What else it wants to know, it says by
// methods of one-method interfaces: [Preparer], [Releaser], [Observer] and [CallHandler],
// and [StateMover].
// [HandlerOf] makes a handler of typed values. Middleware goes around either by [Wrap], which
// keeps these interfaces. [Worker.Ready] waits until the worker takes part in its group.
//
// A handler that writes to a store makes each write conditional on the message's [Fence], and
// returns a [FencedError] when the store rejects it. Package partitiontest tests handlers through
// failures of workers, without a server.
//
// # Everything else
//
// [Open] returns a [Group], the handle for all that is no worker: it provisions the group,
// inspects it, previews plans, overrides and drains workers, changes the number of slots, and
// reads events. Its [Publisher] publishes messages by key, and its [Caller] reaches the owner of
// a key with a request. What it shows is in packages event, state and report; package role has what
// users of the servers may do. Package partitionprom exports [Worker.Metrics] to Prometheus.
//
// # How it works
//
// Each slot has one durable consumer, which never changes; ownership decides
// only who pulls from it. The server pins a slot's consumer to the owner, and
// delivers one message at a time, so that a message in work keeps the next owner
// waiting until it is settled. With Delivery.InFlight above 1 it delivers several,
// and the owner keeps the order of each key.
//
// A worker claims a stable ID ("defender-7"), then a lease that it renews. One
// worker leads: it sees who is there, plans with package plan, and writes the
// assignment map, one small record for all slots. A planned move has the new
// owner prepare while the old one works on, then the old one ends what it has,
// unpins the slot and says so, and the new one pulls. When a worker dies, the
// leader, and only it, takes its slots: it unpins and resets their consumers
// after the map says whose they are now.
//
// # What it relies on
//
// A worker trusts its lease only while it can prove that it is connected, and
// stops within Lease.SuspicionGrace when it can't; the leader waits longer than that
// before it gives the slots of an unreachable worker away. No protocol can stop a
// process that was paused in the middle of a write: therefore every Message
// carries a Fence, and a handler that writes to a store makes the write
// conditional on it. Messages are processed at least once; with the fence and an
// idempotent write the effect is once.
//
// # Limits
//
// Slots should be several times as many as workers, and at most a few hundred to
// a thousand a stream: each acknowledgement costs the server time in proportion
// to the consumers of the stream.
package partition
