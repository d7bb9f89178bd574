// Package local runs both planes on one machine, as muster up does: a broker, a store, a
// collector that publishes, a simulated region with the node plane, defenders in its pods
// or beside them, as goroutines or processes, and the console over everything.
package local

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/nodes/daemon"
	"github.com/muster-dev/muster/partition/role"
)

// Stack is everything on one machine: the worker plane, with the cluster that its defenders
// run on if they run as pods, and the console over both.
type Stack struct {
	*WorkerPlane
	Cluster atomic.Pointer[Cluster] // nil until it is opened

	screen     *screen // nil without a console
	stopScreen context.CancelFunc
}

// Start starts everything but the defenders.
func Start(ctx context.Context, o Options, h Hooks) (*Stack, error) {
	if o.RealNodes != NoRealNodes { // before anything is started for them
		if err := o.RealNodes.possible(ctx); err != nil {
			return nil, &misuse.Error{Err: fmt.Errorf("--real-nodes: %w", err)}
		}
	}
	s := &Stack{WorkerPlane: newWorkerPlane(o.Resolve(), h)}
	if err := s.start(ctx); err != nil {
		return nil, unlessEnded(ctx, errors.Join(err, s.Close()))
	}
	return s, nil
}

// unlessEnded marks what went wrong at the start as wrong usage: a port, a
// directory, a file that the options name.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return &misuse.Error{Err: err}
}

func (s *Stack) start(ctx context.Context) error {
	// The console is there first, and shows what comes. Its address is told when all of it
	// is started.
	address := ""
	if s.o.HTTP != "" {
		var err error
		if address, err = s.serve(ctx); err != nil {
			return err
		}
	}
	if err := s.startPlane(ctx); err != nil {
		return err
	}
	if s.screen == nil {
		return nil
	}
	console, err := s.As(role.Console)
	if err != nil {
		return err
	}
	if err := s.screen.followAlarms(ctx, console); err != nil {
		return err
	}
	return tellAddress(ctx, s.o.Out, address, s.Patience(10*time.Second))
}

// serve serves the console, and metrics beside it, and returns where.
func (s *Stack) serve(ctx context.Context) (address string, err error) {
	nodePlane := &s.Cluster
	if !s.o.OnNodes {
		nodePlane = nil
	}
	if s.screen, err = newScreen(s.WorkerPlane, nodePlane); err != nil {
		return "", err
	}
	s.told = s.screen.event
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopScreen = stop
	go s.screen.Run(running)
	return serve(ctx, s.o.HTTP, s.screen, metricsHandler(s.nodeMetrics, s.running))
}

// nodeMetrics returns the node plane's metrics, nil without one.
func (s *Stack) nodeMetrics() *daemon.Metrics {
	if t := s.Cluster.Load(); t != nil {
		return t.metrics
	}
	return nil
}

// OpenCluster starts a region with workers in two zones, a deployment of defenders without
// pods, and the node plane. asks says whether that knows of the defenders, as with
// WORKERS_NATS_URL and WORKERS_DEPLOYMENT set. pendingUp is how long pods wait before it
// launches a node for them. CloseCluster ends it.
func (s *Stack) OpenCluster(ctx context.Context, zones []string, asks bool, pendingUp time.Duration) (*Cluster, error) {
	t, err := openCluster(ctx, s.WorkerPlane, s.shown(), zones, asks, pendingUp)
	if err != nil {
		return nil, err
	}
	s.Cluster.Store(t)
	return t, nil
}

// shown is what shows the node plane: the console, if there is one.
func (s *Stack) shown() shown {
	if s.screen == nil {
		return unseen{}
	}
	return s.screen
}

// CloseCluster stops the cluster, if there is one.
func (s *Stack) CloseCluster() error {
	if t := s.Cluster.Load(); t != nil {
		return t.close()
	}
	return nil
}

// Close stops everything and removes what is temporary.
func (s *Stack) Close() error {
	err := s.stopDefenders()
	if s.stopScreen != nil {
		s.stopScreen()
	}
	return errors.Join(err, s.closePlane())
}
