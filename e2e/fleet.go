package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/state"
)

// fleet is a stack's defenders, by what they themselves say.
type fleet struct{ *local.Defenders }

// byID returns the running defenders by their stable IDs; those that have none yet
// are left out.
func (f fleet) byID() map[string]*local.Process {
	all := map[string]*local.Process{}
	for _, p := range f.Running() {
		if families, err := p.Gather(); err == nil {
			if n := local.Metric(families, "defender_stable_id"); n >= 0 {
				all[fmt.Sprintf("%s-%.0f", defender.Group, n)] = p
			}
		}
	}
	return all
}

// idOf returns a defender's stable ID, as far as it can be told.
func idOf(p *local.Process) string {
	families, err := p.Gather()
	if err != nil {
		return "?"
	}
	return fmt.Sprintf("%s-%.0f", defender.Group, local.Metric(families, "defender_stable_id"))
}

// total adds up a metric over all defenders that run.
func (f fleet) total(name string) float64 {
	var sum float64
	for _, p := range f.Running() {
		if families, err := p.Gather(); err == nil {
			sum += local.Metric(families, name)
		}
	}
	return sum
}

// allStable reports whether every defender holds slots now, whatever the events say.
func (f fleet) allStable() bool {
	for _, p := range f.Running() {
		families, err := p.Gather()
		if err != nil || local.StateOf(families) != string(state.Stable) {
			return false
		}
	}
	return true
}

// ended waits until defenders have ended by themselves, and checks that without an error.
func ended(ctx context.Context, all []*local.Process, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, p := range all {
		select {
		case <-p.Done:
			if p.Err != nil {
				return p.Err
			}
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %s has handed off and ended", within, p.Name)
		}
	}
	return nil
}
