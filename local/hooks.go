package local

import (
	"context"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/nodes/sim"
)

// Hooks are where a caller may put itself between a stack and what it runs, to observe or to
// disturb it. A stack itself has neither faults nor records. A nil hook stands for what
// production does.
type Hooks struct {
	// Server changes how a NATS server is started, by its place among all.
	Server func(place int, o *ServerOptions)
	// Provision creates the group's streams, buckets and records. o is how each defender
	// will be run.
	Provision func(ctx context.Context, o service.Options, store defender.Store) error
	// Open connects a defender of this process to everything it needs.
	Open func(ctx context.Context, o service.Options, store defender.Store) (Defender, error)
	// Process changes how a defender's process is started.
	Process func(ctx context.Context, l *Launch) error
	// Pod is told of each defender that was started in a pod, and returns what ends it; pod
	// is what does so without the hook.
	Pod func(run sim.PodRun, p *Process, pod sim.Process) sim.Process
	// Interruption is told of each step of an interruption, by name, when it was written
	// down.
	Interruption func(step string)
	// Announce publishes the message of a context that the traffic made in the background.
	Announce Announce
}

// ServerOptions say how one NATS server is started.
type ServerOptions struct {
	broker.Options
	// OwnProcess gives the server a process of its own, which can be killed.
	OwnProcess bool
}

// Announce publishes the message of a context whose T-chart is durable.
type Announce func(ctx context.Context, c *collect.Collector, p Prepared) error

// Prepared is a context whose T-chart is durable and whose message can be published.
type Prepared struct {
	Ref   defender.ContextRef
	Fault string // of the recorded trace; empty: none is known
}
