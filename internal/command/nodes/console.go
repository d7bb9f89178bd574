package nodes

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// How the console of a daemon looks at what others pay for.
const (
	seenFor  = 5 * time.Second // for how long what was read is shown before it is read again, while somebody looks
	pastDay  = 24 * time.Hour  // of the event log, for the timeline
	pastMost = 2000            // events of it
)

// planeConsole shows a node plane, on the page of a daemon: what is durable and what the cloud and the cluster say, read as `muster nodes
// tick --dry-run` reads it, and only while somebody looks.
type planeConsole struct {
	*console.Console
	plan  *nodes.Reconciler
	price console.Pricer

	sizer  nodes.Sizer
	fitter nodes.Fitter

	mu    sync.Mutex
	seen  nodes.Snapshot
	ahead explain.Outlook // after the decision of seen
	at    time.Time       // when that was, by this process's clock
}

// newPlaneConsole returns the console of a plane, and has what the plane writes into its event log from now on shown at once.
func newPlaneConsole(ctx context.Context, p *plane) (*planeConsole, error) {
	c := &planeConsole{sizer: p.Config.Sizer, fitter: p.Config.Fitter, price: func(instanceType string, market nodes.Market) (float64, bool) {
		if p.Price == nil {
			return 0, false
		}
		return p.Price(instanceType, market, "")
	}}
	var err error
	if c.plan, err = nodes.New(p.Config); err != nil {
		return nil, err
	}
	c.Console, err = console.New(console.Options{Title: "Muster " + p.Config.Policy.Cluster, Nodes: c.nodePlane, Refresh: seenFor})
	if err != nil {
		return nil, err
	}
	// An event log that can't be read is the daemon's matter; here it only has no past.
	for e, err := range p.Config.EventLog.Read(ctx, nodes.Query{Since: time.Now().Add(-pastDay), Limit: pastMost}) {
		if err != nil {
			break
		}
		c.say(e)
	}
	p.Config.EventLog = shownEventLog{p.Config.EventLog, c}
	return c, nil
}

// shownEventLog shows events as they are logged.
type shownEventLog struct {
	nodes.EventLog
	on *planeConsole
}

func (j shownEventLog) Append(ctx context.Context, e nodes.Event) error {
	err := j.EventLog.Append(ctx, e)
	j.on.say(e)
	j.on.Changed()
	return err
}

// say puts an event into the timeline; what merely goes on as before is no line.
func (c *planeConsole) say(e nodes.Event) {
	switch e.Kind {
	case "decision", "lease.held", "scaleUp.waiting":
		return
	}
	m := console.MomentOf(e)
	m.Text = secret.Redact(m.Text)
	c.Say(m)
}

func (c *planeConsole) nodePlane(ctx context.Context) (console.NodePlane, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if time.Since(c.at) >= seenFor {
		// The plane compares deadlines with its own clock, which in a simulation is ahead of the machine's: by that one the console's
		// deadline would always have passed. The reading still ends when the console's context does.
		reading, done := untimed(ctx)
		defer done()
		var s nodes.Snapshot
		if s, err = c.plan.Plan(reading); err == nil {
			c.seen, c.at = s, time.Now()
			c.ahead = explain.Ahead(nodes.Decider{Policy: s.Policy, Sizer: c.sizer, Fitter: c.fitter}, s)
		}
	}
	v := console.NodePlaneOf(c.seen, c.price)
	v.Foresee(c.ahead)
	return v, err
}

// untimed returns a context that ends with another one and does not show its deadline.
func untimed(ctx context.Context) (context.Context, context.CancelFunc) {
	plain, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return plain, func() { stop(); cancel(context.Canceled) }
}

// pages serves the console at the root, beside what a daemon serves.
func pages(daemon http.Handler, c *planeConsole) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", c)
	for _, path := range []string{"GET /metrics", "GET /healthz", "GET /readyz"} {
		mux.Handle(path, daemon)
	}
	return mux
}
