package local

import (
	"context"
	"io"
	"os"

	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/service"
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
	// Announce publishes the message of a context that the traffic made in the background.
	Announce Announce
}

// ServerOptions say how one NATS server is started.
type ServerOptions struct {
	broker.Options
	// OwnProcess gives the server a process of its own, which can be killed.
	OwnProcess bool
}

// Defender is a defender that runs in this process.
type Defender interface {
	// Run works until ctx ends, leaves gracefully and closes everything.
	Run(ctx context.Context) error
	// Disconnect cuts the defender off for good, as a kill does.
	Disconnect()
	// Gather returns the defender's metrics.
	Gather() ([]*dto.MetricFamily, error)
}

// Launch says how a defender's process is started.
type Launch struct {
	Options service.Options
	Program string   // empty: this program
	Command []string // subcommand of the program, before the flags
	Flags   []string // added to those that the options stand for
	// Links is closed when the process has ended; nil for nothing.
	Links io.Closer
	// Killed reports whether an end that the stack didn't ask for is a kill, and no
	// failure of the defender; nil: it is a failure.
	Killed func(*os.ProcessState) bool
}

// Announce publishes the message of a context whose T-chart is durable.
type Announce func(ctx context.Context, c *collect.Collector, p Prepared) error

// Prepared is a context whose T-chart is durable and whose message can be published.
type Prepared struct {
	Ref   defender.ContextRef
	Fault string // of the recorded trace; empty: none is known
}

// opened is a defender as production runs it.
type opened struct{ *service.Defender }

func (d opened) Gather() ([]*dto.MetricFamily, error) { return d.Registry.Gather() }

func openDefender(ctx context.Context, o service.Options, store defender.Store) (Defender, error) {
	d, err := service.Open(ctx, o, store)
	if err != nil {
		return nil, err
	}
	return opened{d}, nil
}
