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
// # How it works
//
// Each slot has one durable consumer, which never changes; ownership decides
// only who pulls from it. The server pins a slot's consumer to the owner, and
// delivers one message at a time, so that a message in work keeps the next owner
// waiting until it is settled.
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
