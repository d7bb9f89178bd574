package local

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/misuse"
)

// Options say what Up and Start start. They are flags of "muster up".
type Options struct {
	GroupOptions
	TrafficOptions
	BrokerOptions
	ConsoleOptions
	NodeOptions

	Dir  string    // for everything that is kept; empty: a temporary one
	Busy bool      // the machine does other things, too: what is slow is told, and waited for longer
	Out  io.Writer // progress, timeline and table
}

// GroupOptions are of the defenders and of what they share.
type GroupOptions struct {
	Defenders int // at the beginning
	PoolSize  int // stable IDs; 0 is the default of package partition
	Chambers  int
	Slots     int
	Shards    int  // streams that the slots are spread over; 0 is 1
	Processes bool // defenders as processes
	Expect    bool // the expected number of defenders is known to them
	Verbose   bool // debug lines in the defenders' logs
	// RetryAttempts is after how many failed attempts a message is dead-lettered; until then
	// it is queued, and others of its slot continue. 0: it is tried without end.
	RetryAttempts int
}

// TrafficOptions are of what the collector publishes.
type TrafficOptions struct {
	Rate int    // messages a second in the background
	Data string // directory of traces; empty: generated ones
	Seed uint64 // of generated traces
}

// BrokerOptions are of the NATS servers.
type BrokerOptions struct {
	Servers  int         // 1, or a cluster of 3 or 5; 0 is 1
	Replicas int         // of streams and buckets; 0 is 1
	NATSPort int         // 0: a free one
	Accounts bool        // the servers have accounts, and each part only the permissions of its role
	Sync     broker.Sync // when they sync what they acknowledge to the disk
}

// ConsoleOptions are of the console.
type ConsoleOptions struct {
	HTTP  string // address of metrics and status; empty: none
	Token string // allows actions to a client that sends it; empty: the console is read-only
}

// NodeOptions are of the nodes that the defenders run on.
type NodeOptions struct {
	OnNodes bool // the defenders run as pods on nodes
	Lab     bool // pods run on a real control plane
	// LabKubernetes is the minor version of that control plane; empty: the lab's default.
	LabKubernetes string
	// RealNodes boots a machine for each node, which joins by its user data; defenders are
	// containers there. It goes with Lab.
	RealNodes RealNodes

	boot      time.Duration // of a cluster's nodes, from launch to Ready, more than 5 s; 0: BootTime
	launch    time.Duration // that the cloud takes to answer a launch, beside what it takes
	pendingUp time.Duration // that pods wait before up launches a node for them; 0: twice a boot
}

// SetOnNodes sets what defenders in pods need: the number of replicas is known.
func SetOnNodes(o *Options) { o.Expect, o.OnNodes = true, true }

// Resolve fills in what zero stands for.
func (o Options) Resolve() Options {
	o.Servers, o.Replicas, o.Shards = max(o.Servers, 1), max(o.Replicas, 1), max(o.Shards, 1)
	return o
}

// Validate returns every fault of the options, by the flags' names.
func (o Options) Validate() error {
	o = o.Resolve()
	return errors.Join(o.GroupOptions.validate(), misuse.Within("rate", o.Rate, 0, maxRate), o.BrokerOptions.validate(), o.validateLab())
}

func (o Options) validateLab() error {
	_, err := lab.ReleaseOf(o.LabKubernetes)
	switch {
	case err != nil:
		return fmt.Errorf("--lab-kubernetes: %w", err)
	case o.LabKubernetes != "" && !o.Lab:
		return errors.New("--lab-kubernetes chooses the version of a real control plane: give --lab, too")
	case o.RealNodes != NoRealNodes && !o.Lab:
		return errors.New("--real-nodes joins a real control plane: give --lab, too")
	case o.RealNodes != NoRealNodes && o.Processes:
		return errors.New("--processes: defenders are containers with --real-nodes: leave one of them out")
	}
	return nil
}

func (o GroupOptions) validate() error {
	errs := []error{
		misuse.Within("defenders", o.Defenders, 1, maxDefenders),
		misuse.Within("chambers", o.Chambers, 1, maxChambers),
		misuse.Within("slots", o.Slots, 1, maxSlots),
		misuse.Within("retry-attempts", o.RetryAttempts, 0, maxAttempts),
		misuse.Shards(o.Shards, o.Slots),
	}
	if o.Slots < o.Defenders {
		errs = append(errs, fmt.Errorf("--slots is %d for %d --defenders: give at least as many slots as defenders", o.Slots, o.Defenders))
	}
	return errors.Join(errs...)
}

func (o BrokerOptions) validate() error {
	errs := []error{misuse.Within("nats-port", o.NATSPort, 0, 65535)}
	if o.Servers != 1 && o.Servers != 3 && o.Servers != 5 {
		errs = append(errs, fmt.Errorf("--servers is %d: give 1, 3 or 5", o.Servers))
	}
	if o.Replicas != 1 && o.Replicas != 3 && o.Replicas != 5 || o.Replicas > o.Servers {
		errs = append(errs, fmt.Errorf("--replicas is %d for %d --servers: give 1, 3 or 5, at most as many as servers", o.Replicas, o.Servers))
	}
	if o.Servers > 1 && o.NATSPort != 0 {
		errs = append(errs, fmt.Errorf("--nats-port is %d for %d --servers: each takes a free one, give 0", o.NATSPort, o.Servers))
	}
	return errors.Join(errs...)
}

// Bounds of what one machine is asked to do.
const (
	maxDefenders = 2000
	maxChambers  = 100_000
	maxSlots     = 16_384
	maxRate      = 100_000
	maxAttempts  = 1_000_000
)
