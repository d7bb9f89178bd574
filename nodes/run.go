package nodes

import (
	"fmt"
	"time"
)

// run is one tick, or one piece of work on an interruption: what it was configured with and the lease, time,
// record and events that everything done in it shares. What it does is in the types that embed a run: each is
// one job and owns the fields that only it needs.
type run struct {
	config *Config
	id     string
	lease  *lease
	calls  calls
	budget *budget
	state  *runState
	log    *runLog
	people *nodeTeller

	diagnosed map[string]diagnosed // by instance ID
}

// newRun returns a run that holds no lease. It begins nothing new once stop returns true; stop may be nil.
func newRun(c *Config, id string, stop func() bool) *run {
	l := &lease{clock: c.Clock}
	calls := calls{clock: c.Clock, lease: l}
	state := &runState{store: c.Store, calls: calls, lease: l}
	log := &runLog{clock: c.Clock, eventLog: c.EventLog, calls: calls, state: state, id: id}
	return &run{
		config: c,
		id:     id,
		lease:  l,
		calls:  calls,
		budget: &budget{clock: c.Clock, start: c.Clock.Now(), limit: c.TickBudget, stop: stop},
		state:  state,
		log:    log,
		people: &nodeTeller{reporter: c.Reporter, clock: c.Clock, log: log},

		diagnosed: map[string]diagnosed{},
	}
}

func (r *run) now() time.Time { return r.config.Clock.Now() }

// newActionID returns an ID that sorts by time and that no other action has.
func (r *run) newActionID() string { return fmt.Sprintf("%d-%s", r.now().Unix(), r.config.NewID()) }
