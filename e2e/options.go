package e2e

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/internal/powercut"
	"github.com/muster-dev/muster/local"
)

// Options say what a scenario starts and does. They are the flags of "muster up".
type Options struct {
	local.Options
	Case     string        // variant of a scenario
	Work     time.Duration // added to each context's processing
	Kills    int           // of scenario crash; power cuts of scenario power-cut
	Minutes  float64       // of faults in scenario chaos, of measuring in scenario load
	Points   int           // of each trace in scenario load; 0: as recorded or generated
	Previous string        // muster binary of the version before, of scenario mixed-version

	PowerCuts bool // scenario chaos cuts the servers' power, too
	// Ext4Data is what the file systems of the servers' disks journal. Empty: all data under
	// several servers, as deploy/kubernetes/nats-ebs has it, and ext4's default under one.
	Ext4Data powercut.Journal

	// What a scenario needs of the stack.
	ownBroker             bool          // the one server must be killed: with Processes it has its own
	chaotic               bool          // the defenders' network can be cut, and they may die without being asked to
	onDisks               bool          // each server has a disk of its own, whose power can be cut
	maxStore              int64         // bytes that each NATS server may keep; 0: its default
	provisionedByPrevious bool          // the group's streams, buckets and records are the previous version's
	loadFor               time.Duration // that scenario load measures for, in place of Minutes
}

// resolve fills in what zero stands for.
func (o Options) resolve() Options {
	o.Options = o.Resolve()
	if o.Minutes == 0 {
		o.Minutes = 10
	}
	return o
}

// Validate returns every fault of the options, by the flags' names.
func (o Options) Validate() error {
	o = o.resolve()
	return errors.Join(
		o.Options.Validate(),
		misuse.Within("kills", o.Kills, 1, 1000),
		misuse.Within("points", o.Points, 0, maxPoints),
		o.checkMinutes(),
		o.checkWork(),
		o.checkExt4Data(),
	)
}

func (o Options) checkMinutes() error {
	if o.Minutes >= 0.5 && o.Minutes <= maxMinutes {
		return nil
	}
	return fmt.Errorf("--minutes is %v: give 0.5 to %d", o.Minutes, maxMinutes)
}

func (o Options) checkWork() error {
	if o.Work >= 0 && o.Work <= time.Hour {
		return nil
	}
	return fmt.Errorf("--work is %v: give 0s to 1h", o.Work)
}

func (o Options) checkExt4Data() error {
	if err := o.ext4Data().Check(); err != nil {
		return fmt.Errorf("--ext4-data: %w", err)
	}
	return nil
}

// ext4Data is what the servers' file systems journal.
func (o Options) ext4Data() powercut.Journal {
	switch {
	case o.Ext4Data != "":
		return o.Ext4Data
	case o.Servers > 1:
		return powercut.JournaledData
	default:
		return powercut.OrderedData
	}
}

// Bounds of what one run is asked to do.
const (
	maxMinutes = 24 * 60
	maxPoints  = 4_000_000
)

// onNodes sets what scenarios on nodes need.
func onNodes(o *Options) { local.SetOnNodes(&o.Options) }

// suit gives an option a value, unless its flag was chosen.
func suit[T any](chosen func(flag string) bool, flag string, option *T, value T) {
	if !chosen(flag) {
		*option = value
	}
}

// joining is how many defenders join in scenario scale-up.
func (o Options) joining() int { return (o.Defenders + 1) / 2 }

// caseBrief is of messages that are worked on briefly: then nothing but the
// handoff itself keeps a joining worker waiting.
const caseBrief = "brief"

// wholeAtOnce reports whether all joining workers can join in one window.
func (o Options) wholeAtOnce() bool {
	return o.Case == "" || o.Case == caseBrief || o.Case == "stale-claim"
}
