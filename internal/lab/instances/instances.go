// Package instances boots a real machine of a laboratory for each instance that a simulated
// region launches, with the user data of the launch. What the cloud does to the instance
// happens to the machine: its console is the instance's, and its power is cut when the
// instance is terminated or taken away.
package instances

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// look is the time between looks at the region.
const look = 50 * time.Millisecond

// interruptionNotice is how long before its end a Spot instance is told.
const interruptionNotice = 2 * time.Minute

// Options of Instances. The zero value works.
type Options struct {
	Region string                 // name; "": local
	Memory func(typ string) int64 // of an instance type, bytes; nil: 2 GiB
	CPUs   func(typ string) int   // of an instance type; nil: those of this machine

	Systemd bool // machines boot by systemd, and cloud-init runs their user data; the laboratory needs Options.Systemd

	// Prepare, if set, is called with each machine before it boots and may change it.
	Prepare func(*lab.Machine)
}

// Instances are the machines behind a region's instances. They are made by New and given to
// the region as region.Options.Machines; Attach connects them with the region's simulator
// and a laboratory.
type Instances struct {
	o Options

	ctx     context.Context // ends with Close
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	lab     *lab.Lab // nil before Attach
	waiting []lab.Machine
	known   map[string]chan struct{} // by instance; closed once its machine was started
	errs    []error
}

// New returns no machines yet. What is launched before Attach boots then.
func New(o Options) *Instances {
	if o.Region == "" {
		o.Region = "local"
	}
	if o.Memory == nil {
		o.Memory = func(string) int64 { return 2 << 30 }
	}
	if o.CPUs == nil {
		o.CPUs = func(string) int { return 0 }
	}
	i := &Instances{o: o, known: map[string]chan struct{}{}}
	i.ctx, i.stop = context.WithCancel(context.Background())
	return i
}

// Attach boots machines in a laboratory, which needs Options.RealNodes and the region's URL
// in Options.AWS, and begins to follow the region.
func (i *Instances) Attach(l *lab.Lab, s *sim.Simulator) {
	i.mu.Lock()
	i.lab = l
	waiting := i.waiting
	i.waiting = nil
	i.mu.Unlock()
	for _, m := range waiting {
		i.boot(m)
	}
	i.running.Go(func() { i.follow(s) })
}

// Launch boots the machine of an instance, unless it has been. It implements awsapi.Machines.
func (i *Instances) Launch(in nodes.Instance, userData string) {
	m := lab.Machine{ID: in.ID, Memory: i.o.Memory(in.Type), CPUs: i.o.CPUs(in.Type), UserData: userData, Zone: in.Zone, Region: i.o.Region, Type: in.Type, Systemd: i.o.Systemd}
	i.mu.Lock()
	if i.known[in.ID] != nil {
		i.mu.Unlock()
		return
	}
	i.known[in.ID] = make(chan struct{})
	if i.o.Prepare != nil {
		i.o.Prepare(&m)
	}
	attached := i.lab != nil
	if !attached {
		i.waiting = append(i.waiting, m)
	}
	i.mu.Unlock()
	if attached {
		i.boot(m)
	}
}

// boot starts a machine in the background: an API answers a launch before that.
func (i *Instances) boot(m lab.Machine) {
	i.running.Go(func() {
		i.mu.Lock()
		started, l := i.known[m.ID], i.lab
		i.mu.Unlock()
		defer close(started)
		if _, err := l.Boot(i.ctx, m); err != nil {
			i.failed(err)
		}
	})
}

// failed keeps an error for Close, unless it is of the end itself.
func (i *Instances) failed(err error) {
	if i.ctx.Err() != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.errs = append(i.errs, err)
}

// Console returns what an instance's machine has written. It implements awsapi.Machines.
func (i *Instances) Console(ctx context.Context, instanceID string) (output string, ok bool) {
	i.mu.Lock()
	started, l := i.known[instanceID], i.lab
	i.mu.Unlock()
	if started == nil || l == nil {
		return "", false
	}
	s, err := l.Inspect(ctx, instanceID)
	return s.Console, err == nil
}

// Reboot has the machine of an instance reboot. It implements awsapi.Machines.
func (i *Instances) Reboot(ctx context.Context, instanceID string) error {
	i.mu.Lock()
	started, l := i.known[instanceID], i.lab
	i.mu.Unlock()
	if started == nil || l == nil {
		return nil // a simulated one, which has nothing to lose
	}
	return l.Reboot(ctx, instanceID)
}

// follow tells machines of their end and cuts the power of those whose instances end or stop.
func (i *Instances) follow(s *sim.Simulator) {
	t := time.NewTicker(look)
	defer t.Stop()
	seen := 0
	for {
		for _, e := range s.Ledger()[seen:] {
			seen++
			switch e.Kind {
			case sim.Terminated, sim.TakenAway, sim.Stopped:
				i.running.Go(func() { i.end(e.Instance) })
			case sim.Warned:
				i.running.Go(func() { i.warn(e) })
			}
		}
		select {
		case <-i.ctx.Done():
			return
		case <-t.C:
		}
	}
}

// started waits until the machine of an instance was started. It returns false if there is
// none: an instance can have been there before the region had machines.
func (i *Instances) started(id string) (*lab.Lab, bool) {
	i.mu.Lock()
	started, l := i.known[id], i.lab
	i.mu.Unlock()
	if started == nil {
		return nil, false
	}
	select {
	case <-started:
		return l, true
	case <-i.ctx.Done():
		return nil, false
	}
}

// warn has the metadata service of a machine say what was announced of its instance.
func (i *Instances) warn(e sim.Entry) {
	var told lab.Notices
	switch nodes.InterruptionKind(e.Detail) {
	case nodes.Warning:
		told.Interruption = e.At.Add(interruptionNotice)
	case nodes.Rebalance:
		told.Rebalance = e.At
	default:
		return // an instance is told of no other kind
	}
	l, ok := i.started(e.Instance)
	if !ok {
		return
	}
	if err := l.Notify(i.ctx, e.Instance, told); err != nil && !errors.Is(err, lab.ErrNoMachine) {
		i.failed(err)
	}
}

// end cuts the power of a machine, once it was started.
func (i *Instances) end(id string) {
	l, ok := i.started(id)
	if !ok {
		return
	}
	if err := l.CutPower(i.ctx, id); err != nil && !errors.Is(err, lab.ErrNoMachine) { // that one did not start
		i.failed(fmt.Errorf("ending the machine of an instance: %w", err))
	}
}

// Close stops following the region, which is to be closed before, and returns what went
// wrong meanwhile. The machines end with the laboratory.
func (i *Instances) Close() error {
	i.stop()
	i.running.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return errors.Join(i.errs...)
}
