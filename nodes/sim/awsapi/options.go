package awsapi

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Options describe what the region holds besides the simulator's instances, and how it names and pages them. The zero value works: it
// has every image and template, no parameter and no secret.
type Options struct {
	Tag                Tag               // of the cluster's instances and subnets; zero: muster.dev/cluster=NAME, or =sim for a nameless cluster
	ServerTag          Tag               // of K3s servers; zero: muster.dev/role=control-plane
	PageSize           int               // most instances of one page of a list; 0: 1,000
	Parameters         map[string]string // of SSM, by name, or by name:version
	Secrets            map[string]string // of Secrets Manager, by name
	Images             []string          // IDs of images; nil: every image exists
	TemplateInterfaces bool              // launch templates have a network interface, beside which a launch may name no subnet
	Templates          map[string]string // image by launch template and version, TEMPLATE/VERSION; nil: every template exists
	UserData           map[string]string // of launch templates, by TEMPLATE/VERSION; a launch with its own has that
	Machines           Machines          // behind the instances that are launched; nil: there are none
	Price              Price             // what instances cost; nil: the Price List and the history of Spot prices are empty
	Foreign            []nodes.Instance  // instances of others, which carry no tag
	Actor              string            // in the ledger; "": aws
	PollUnit           time.Duration     // how long a second of long polling takes; 0: a second
}

// Machines run what the region's instances are told to. The simulator keeps to itself what
// becomes of an instance: its ledger says when one ends, and so has to be switched off.
// Methods may be called by several goroutines.
type Machines interface {
	// Launch starts a machine for an instance, unless it has one: a launch may be repeated.
	// It returns before the machine has booted.
	Launch(in nodes.Instance, userData string)
	// Console returns what the machine of an instance has written to its console; ok is
	// false if it has none.
	Console(ctx context.Context, instanceID string) (output string, ok bool)
	// Reboot asks the machine of an instance to reboot, if it has one. It returns before that
	// has.
	Reboot(ctx context.Context, instanceID string) error
}

// withDefaults returns the options with the values that the zero ones stand for in a cluster.
func (o Options) withDefaults(cluster string) Options {
	o.Actor = cmp.Or(o.Actor, "aws")
	o.PageSize = cmp.Or(o.PageSize, 1000)
	o.PollUnit = cmp.Or(o.PollUnit, time.Second)
	if o.Tag == (Tag{}) {
		o.Tag = Tag{"muster.dev/cluster", cmp.Or(cluster, "sim")}
	}
	if o.ServerTag == (Tag{}) {
		o.ServerTag = Tag{"muster.dev/role", "control-plane"}
	}
	if o.Price == nil {
		o.Price = none
	}
	o.Parameters = maps.Clone(o.Parameters)
	if o.Parameters == nil {
		o.Parameters = map[string]string{}
	}
	o.Foreign = slices.Clone(o.Foreign)
	for i := range o.Foreign {
		o.Foreign[i].Foreign = true
	}
	return o
}
