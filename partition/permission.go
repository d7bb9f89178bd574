package partition

import (
	"fmt"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/reserve"
	"github.com/muster-dev/muster/partition/role"
)

// This file holds what each kind of user may do on the servers, from the names and
// subjects that the rest of the package works with. A NATS server compares subjects only:
// it can't tell a purge of one key from a write, or a consumer that reads from one that
// sends what it reads elsewhere. So a list says what a user needs, and docs/security.md
// what a stolen password of that user allows.

// User returns the name of a group's user of a role, "defender-worker".
func (c Config) User(r role.Role) string { return c.Name + "-" + string(r) }

// inboxOf begins the subjects of a user's inboxes. Each user has its own: a user that
// may subscribe to those of another sees the messages that the other pulls.
func inboxOf(user string) string { return "_INBOX." + user }

// Permissions returns what the group's user of a role needs, and nothing else. It needs
// Name, Stream, Subject, Shards, Source and Retry. The user's connections must have the inbox prefix
// "_INBOX.<user>", as nats.CustomInboxPrefix sets it.
func (c Config) Permissions(r role.Role) (role.Permissions, error) {
	cfg := c.resolve()
	lay, err := cfg.validate()
	if err != nil {
		return role.Permissions{}, err
	}
	p := &permissionList{cfg: cfg, lay: lay}
	p.subscribe(inboxOf(cfg.User(r)) + ".>")
	switch r {
	case role.Worker:
		p.worker()
	case role.Publisher:
		p.publisher()
	case role.Collector:
		p.publish(p.lay.shardPrefix("*") + cfg.Subject) // it needs no mapping
		p.api("STREAM.INFO", bucketPrefix+cfg.bucketMap())
		p.api("DIRECT.GET", bucketPrefix+cfg.bucketMap()+".$KV."+cfg.bucketMap()+"."+layoutKey)
	case role.Caller:
		p.caller()
	case role.Viewer:
		p.viewer()
		p.subscribe(eventSubjects(cfg.Name))
	case role.Console:
		p.viewer()
		p.subscribe(eventSubjects(cfg.Name))
		p.drains()
	case role.Nodes:
		p.readKey(cfg.bucketMap(), record.AssignmentKey)
		p.publish("$KV." + cfg.bucketMap() + "." + expectedKey)
		p.drains()
	case role.Operator:
		p.operator()
	default:
		return role.Permissions{}, fmt.Errorf("permissions of role %q: there is no such role: give one of %v", r, role.All)
	}
	return p.With(role.Permissions{}), nil
}

// permissionList collects permissions.
type permissionList struct {
	cfg Config
	lay layout
	role.Permissions
}

func (p *permissionList) publish(subjects ...string) { p.Publish = append(p.Publish, subjects...) }
func (p *permissionList) subscribe(subjects ...string) {
	p.Subscribe = append(p.Subscribe, subjects...)
}

// api allows requests to the JetStream API about a stream.
func (p *permissionList) api(verb, rest string) { p.publish("$JS.API." + verb + "." + rest) }

// readKey allows reading one key of a bucket.
func (p *permissionList) readKey(bucket, key string) {
	p.api("STREAM.INFO", bucketPrefix+bucket)
	p.api("DIRECT.GET", bucketPrefix+bucket+".$KV."+bucket+"."+key)
}

// follow allows reading a bucket and following its changes.
func (p *permissionList) follow(bucket string) {
	stream := bucketPrefix + bucket
	p.api("STREAM.INFO", stream)
	p.api("CONSUMER.CREATE", stream+".*.$KV."+bucket+".>")
	p.api("CONSUMER.DELETE", stream+".*")
	p.publish("$JS.FC." + stream + ".>")
}

// makeStream allows creating a stream and changing its settings.
func (p *permissionList) makeStream(stream string) {
	p.api("STREAM.INFO", stream)
	p.api("STREAM.CREATE", stream)
	p.api("STREAM.UPDATE", stream)
}

func (p *permissionList) buckets() []string {
	return []string{p.cfg.bucketIDs(), p.cfg.bucketLeases(), p.cfg.bucketMap()}
}

// makeAll allows creating all that the group needs.
func (p *permissionList) makeAll() {
	p.api("STREAM.INFO", reserve.TurnStream)
	p.api("STREAM.CREATE", reserve.TurnStream)
	p.publish(reserve.TurnStream)
	for _, b := range p.buckets() {
		p.makeStream(bucketPrefix + b)
	}
	p.follow(p.cfg.bucketLeases()) // whether workers are there
	p.readKey(p.cfg.bucketMap(), ">")
	for _, s := range p.lay.streams() {
		p.makeStream(s)
		p.api("CONSUMER.NAMES", s)
		p.api("CONSUMER.CREATE", s+".*."+p.lay.prefix()+">")
	}
	if p.lay.sourced() {
		consumer := p.lay.source + "." + p.lay.sourceConsumer()
		p.api("STREAM.INFO", p.lay.source)
		p.api("CONSUMER.INFO", consumer)
		p.api("CONSUMER.CREATE", consumer+"."+p.cfg.Subject)
	}
	p.makeStream(retryStreamName(p.cfg.Stream))
	if p.cfg.Retry.givesUp() {
		p.makeStream(p.lay.deadLetterStream())
	}
	p.api("STREAM.INFO", eventStreamName(p.cfg.Name))
	p.api("STREAM.UPDATE", eventStreamName(p.cfg.Name))
	if p.cfg.Shards > 1 {
		p.publish(p.cfg.Subject) // which asks whether the servers have the mapping
	}
}

func (p *permissionList) worker() {
	p.makeAll()
	p.makeStream(eventStreamName(p.cfg.Name))
	for _, b := range p.buckets() {
		p.follow(b)
		p.readKey(b, ">") // creating a key where there was one reads it
		p.publish("$KV." + b + ".>")
		p.api("STREAM.MSG.GET", bucketPrefix+b)
		p.api("STREAM.DELETE", bucketPrefix+b) // of one that has gone back, to create it again
	}
	for _, s := range p.lay.streams() {
		for _, verb := range []string{"INFO", "DELETE", "MSG.NEXT", "UNPIN", "RESET"} {
			p.api("CONSUMER."+verb, s+".*")
		}
		p.api("STREAM.MSG.GET", s)
		p.api("STREAM.MSG.DELETE", s)      // of a message that is in the retry queue
		p.publish("$JS.ACK." + s + ".*.>") // in the servers' format of 2.15; see their feature flag js_ack_fc_v2
	}
	retry := retryStreamName(p.cfg.Stream)
	p.api("STREAM.MSG.GET", retry)
	p.api("STREAM.MSG.DELETE", retry)
	p.publish(p.lay.retryPrefix() + ">")
	if p.cfg.Retry.givesUp() {
		p.publish(p.lay.deadLetterSubject())
	}
	p.publish(eventSubjects(p.cfg.Name))
	p.subscribe(eventSubject(p.cfg.Name, event.ResourceRecreated))
	p.publish(peerSubjects(p.cfg.Name), peerSubjects(p.cfg.Name)+fenceSuffix)
	p.publish(peerSubjects(p.cfg.Name)+stateSuffix, peerSubjects(p.cfg.Name)+stateSuffix+".*")
	p.subscribe(peerSubjects(p.cfg.Name), peerSubjects(p.cfg.Name)+callSuffix, peerSubjects(p.cfg.Name)+drainSuffix,
		peerSubjects(p.cfg.Name)+fenceSuffix, standbySubject(p.cfg.Name), refusalSubject(p.cfg.Name))
	p.subscribe(peerSubjects(p.cfg.Name)+stateSuffix, peerSubjects(p.cfg.Name)+stateSuffix+".*")
	// The answer to a call may come later than servers let Respond be used.
	p.publish(inboxOf(p.cfg.User(role.Caller)) + ".>")
	p.Respond = true // to requests to hand over, and for standbys
}

func (p *permissionList) publisher() {
	p.publish(p.cfg.Subject)
	if p.cfg.Shards > 1 {
		p.publish(p.lay.shardPrefix("*") + p.cfg.Subject)
	}
}

// caller allows calling keys.
func (p *permissionList) caller() {
	bucket := p.cfg.bucketMap()
	p.readKey(bucket, layoutKey)
	p.readKey(bucket, record.AssignmentKey)
	p.api("CONSUMER.CREATE", bucketPrefix+bucket+".*.$KV."+bucket+"."+record.AssignmentKey)
	p.api("CONSUMER.DELETE", bucketPrefix+bucket+".*")
	p.publish("$JS.FC." + bucketPrefix + bucket + ".>")
	p.publish(peerSubjects(p.cfg.Name) + callSuffix)
}

func (p *permissionList) viewer() {
	p.readKey(p.cfg.bucketMap(), ">")
	p.follow(p.cfg.bucketMap())
	p.follow(p.cfg.bucketLeases())
	for _, s := range p.lay.streams() {
		p.api("STREAM.INFO", s)
	}
	if p.lay.sourced() {
		p.api("CONSUMER.INFO", p.lay.source+"."+p.lay.sourceConsumer())
	}
	retry := retryStreamName(p.cfg.Stream)
	p.api("STREAM.INFO", retry)
	p.api("STREAM.MSG.GET", retry)
	if p.cfg.Retry.givesUp() {
		p.api("STREAM.INFO", p.lay.deadLetterStream())
		p.api("STREAM.MSG.GET", p.lay.deadLetterStream())
	}
	events := eventStreamName(p.cfg.Name)
	for _, verb := range []string{"CREATE", "INFO", "MSG.NEXT", "DELETE"} { // an ordered consumer
		p.api("CONSUMER."+verb, events+".*")
	}
	p.api("CONSUMER.CREATE", events+".*."+eventSubjects(p.cfg.Name)) // of one kind
	p.publish(standbySubject(p.cfg.Name), refusalSubject(p.cfg.Name))
}

// drains allows asking workers to hand off their slots.
func (p *permissionList) drains() {
	p.follow(p.cfg.bucketLeases())
	p.publish(peerSubjects(p.cfg.Name) + drainSuffix)
}

func (p *permissionList) operator() {
	p.makeAll()
	p.viewer()
	p.drains()
	if p.lay.sourced() { // messages that were dead-lettered, again
		p.publish(p.lay.directPrefix() + p.cfg.Subject)
	} else {
		p.publisher()
	}
	if p.cfg.Retry.givesUp() {
		p.api("STREAM.MSG.DELETE", p.lay.deadLetterStream())
	}
	for _, key := range []string{layoutKey, expectedKey, wantedKey, overridesKey} {
		p.publish("$KV." + p.cfg.bucketMap() + "." + key)
	}
}
