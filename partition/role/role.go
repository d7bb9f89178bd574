// Package role names the kinds of users of a group on the NATS servers, and lists what a
// user may do there.
package role

import "slices"

// Permissions are the subjects that a user of a NATS server may publish and subscribe to.
type Permissions struct {
	Publish, Subscribe []string
	// DenyPublish is what Publish would allow and the user must not do.
	DenyPublish []string
	// Respond lets the user publish one answer to the reply subject of each message that
	// it gets.
	Respond bool
}

// Role is a kind of user of a group.
type Role string

// The roles.
const (
	Worker    Role = "worker"
	Publisher Role = "publisher"
	Collector Role = "collector"
	Caller    Role = "caller"
	Viewer    Role = "viewer"
	Console   Role = "console"
	Nodes     Role = "nodes"
	Operator  Role = "operator"
)

// About says in a line what a role does.
func (r Role) About() string {
	switch r {
	case Worker:
		return "works: everything that a running worker does, with the streams and buckets that it creates"
	case Publisher:
		return "publishes messages; it knows the number of shards"
	case Collector:
		return "publishes messages, and reads the number of shards first"
	case Caller:
		return "calls keys: follows the assignment map, and sends requests to their owners"
	case Viewer:
		return "sees everything and changes nothing"
	case Console:
		return "a viewer that may also drain workers and acknowledge alarms"
	case Nodes:
		return "the node plane: sees workers, drains them, and tells them how many there should be"
	case Operator:
		return "provisions the group, and does what the commands of partitions and defender do"
	}
	return ""
}

// All lists the roles.
var All = []Role{Worker, Publisher, Collector, Caller, Viewer, Console, Nodes, Operator}

// With returns what either of two lists allows. The result is sorted and names nothing
// twice.
func (p Permissions) With(more Permissions) Permissions {
	return Permissions{
		Publish:     union(p.Publish, more.Publish),
		Subscribe:   union(p.Subscribe, more.Subscribe),
		DenyPublish: union(p.DenyPublish, more.DenyPublish),
		Respond:     p.Respond || more.Respond,
	}
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// ReadStream returns what it takes to read a stream from a position on, by an ordered
// consumer.
func ReadStream(stream string) Permissions {
	p := Permissions{Publish: []string{"$JS.API.STREAM.INFO." + stream}}
	for _, verb := range []string{"CREATE", "INFO", "MSG.NEXT", "DELETE"} {
		p.Publish = append(p.Publish, "$JS.API.CONSUMER."+verb+"."+stream+".*")
	}
	return Permissions{}.With(p)
}
