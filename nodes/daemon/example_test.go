package daemon_test

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/nodes/sim"
)

// A daemon runs until its context ends, and leaves the lease free.
func Example() {
	p := nodes.DefaultPolicy()
	w := sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}})
	c := w.Client("example", nil)
	d, err := daemon.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c, Clock: w.Clock()}, daemon.Options{Interval: time.Minute})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.After(3*time.Minute, stop)
	fmt.Println(d.Run(ctx), w.Record().LeaseOwner == "", w.Record().WorkerCount.Value())
	// Output: <nil> true 2
}
