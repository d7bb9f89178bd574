package nodes

import "context"

// Reconciler makes a cluster what its policy wants. It keeps nothing in memory between two ticks: everything
// that has to survive is in the record.
type Reconciler struct {
	c Config
}

// New returns a Reconciler. The error lists what is missing or wrong.
func New(c Config) (*Reconciler, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c.setDefaults()
	return &Reconciler{c: c}, nil
}

// Report is what a tick did.
type Report struct {
	Tick     string    // its ID, by which its events are found
	Held     bool      // another tick holds the lease: nothing was done
	Decision *Decision // the last that asked for an action, or else the last; nil if it did not come to one
	Carried  bool      // it asked for no action and continued one that was open
	Events   []Event   // what it logged
}

// Tick continues open interruptions, takes the lease, sweeps, continues the open actions, decides on others, and
// gives the lease back. It leaves the record valid wherever it ends. The error joins everything that went wrong; the next tick tries again, so callers log it
// and continue.
func (r *Reconciler) Tick(ctx context.Context) (Report, error) {
	t := newTick(&r.c)
	decision, held := t.do(ctx)
	carried := t.carried && decision != nil && decision.Action == Noop
	return Report{Tick: t.id, Held: held, Decision: decision, Carried: carried, Events: t.log.events}, t.log.err()
}

// Plan observes and decides without writing, launching or removing anything.
func (r *Reconciler) Plan(ctx context.Context) (Snapshot, error) {
	return newTick(&r.c).plan(ctx)
}

// Interrupt handles one event. When it returns nil the event is either of no concern or durably noted, and
// need not be delivered again; an interruption that could not be worked to its end now is taken up by the
// next tick. It runs beside ticks, without their lease.
func (r *Reconciler) Interrupt(ctx context.Context, e InterruptionEvent) error {
	return newTick(&r.c).interruptions.handle(ctx, e)
}
