package e2e

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/local"
)

// Options say what a scenario starts and does. They are the flags of "muster up".
type Options struct {
	local.Options
	Case      string  // variant of a scenario
	Kills     int     // of scenario crash; power cuts of scenario power-cut
	PowerCuts bool    // scenario chaos cuts the servers' power, too
	Minutes   float64 // of faults in scenario chaos, of measuring in scenario load
	Points    int     // of each trace in scenario load; 0: as recorded or generated
	Previous  string  // muster binary of the version before, of scenario mixed-version

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
	)
}

func (o Options) checkMinutes() error {
	if o.Minutes >= 0.5 && o.Minutes <= maxMinutes {
		return nil
	}
	return fmt.Errorf("--minutes is %v: give 0.5 to %d", o.Minutes, maxMinutes)
}

// Bounds of what one run is asked to do.
const (
	maxMinutes = 24 * 60
	maxPoints  = 4_000_000
)

// onNodes sets what scenarios on nodes need.
func onNodes(o *Options) { local.SetOnNodes(&o.Options) }
