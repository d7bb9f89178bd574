package simulate

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// clockVariable tells other processes the time of a simulation that runs faster: a moment of the machine's clock, the simulation's time
// at that moment, both in nanoseconds since 1970, and how many times faster it passes.
const clockVariable = "MUSTER_SIMULATED_CLOCK"

// clocks returns the clocks by which commands look at a cluster: the machine's, unless the environment is that of a simulation which
// runs faster. Ages, leases and waiting times are told by the clock of those who tick. Commands that only look wait as long as on the
// machine's: nothing that they look at is held meanwhile.
func clocks() (ticking, looking nodes.Clock, err error) {
	text := os.Getenv(clockVariable)
	if text == "" {
		return nodes.SystemClock{}, nodes.SystemClock{}, nil
	}
	var machine, simulated int64
	var speed float64
	if n, err := fmt.Sscanf(text, "%d %d %g", &machine, &simulated, &speed); err != nil || n != 3 || !(speed > 0) {
		return nil, nil, fmt.Errorf("%s is %q: unset it, or read the simulation's env file again", clockVariable, text)
	}
	now := func() time.Time {
		return time.Unix(0, simulated).Add(time.Duration(float64(time.Since(time.Unix(0, machine))) * speed))
	}
	return fastClock{now, speed}, fastClock{now, 1}, nil
}

// fastClock reads a simulator's time while sim.RealTime lets it pass; it waits in real time. Deadlines are told in the simulator's time, by
// which the adapters keep them, and end contexts in real time.
type fastClock struct {
	now   func() time.Time
	speed float64
}

var _ nodes.Clock = fastClock{}

func (c fastClock) Now() time.Time { return c.now() }

func (c fastClock) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.speed)
}

func (c fastClock) Sleep(ctx context.Context, d time.Duration) error {
	return nodes.SystemClock{}.Sleep(ctx, c.real(d))
}

func (c fastClock) WithDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	if d, ok := c.deadline(ctx); ok && d.Before(t) {
		t = d
	}
	ctx, cancel := context.WithTimeout(ctx, c.real(t.Sub(c.Now())))
	return fastContext{ctx, t}, cancel
}

// deadline returns a context's deadline in the simulator's time. The simulator's time may be far
// ahead of the machine's: a deadline of the machine, which a server or a page put on the
// context, would be past if it were taken for one of the simulator.
func (c fastClock) deadline(ctx context.Context) (time.Time, bool) {
	d, ok := ctx.Deadline()
	if !ok {
		return time.Time{}, false
	}
	// A context made of a fastContext inherits its deadline, unless it was given one of
	// its own by the machine's clock.
	if of, made := ctx.Value(fastDeadline{}).(time.Time); made && of.Equal(d) {
		return d, true
	}
	return c.Now().Add(time.Duration(float64(time.Until(d)) * c.speed)), true
}

// fastDeadline is the key by which a context tells the simulator's deadline that it has.
type fastDeadline struct{}

type fastContext struct {
	context.Context
	deadline time.Time
}

func (c fastContext) Value(key any) any {
	if key == (fastDeadline{}) {
		return c.deadline
	}
	return c.Context.Value(key)
}

func (c fastContext) Deadline() (time.Time, bool) { return c.deadline, true }
