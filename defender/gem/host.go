package gem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/hsms"
	"github.com/muster-dev/muster/defender/ingest"
	"github.com/muster-dev/muster/tchart"
)

// Taker makes runs durable, as an [ingest.Ingester] does.
type Taker interface {
	Take(ctx context.Context, run *ingest.Run) (ingest.Receipt, error)
}

// Store is where T-charts are looked for after a crash, as a [defender.Store] has them.
type Store interface {
	TChart(ctx context.Context, key defender.TChartKey) ([]byte, error)
}

// Config is what a host works with; all but Report and Logger are required.
type Config struct {
	Plan   *Plan
	Taker  Taker
	Store  Store
	Ledger *Ledger
	Report func(Report) // is told what people should know, by several goroutines
	Logger *slog.Logger
}

// What a [Report] is about, beside the states of runs that are over.
const (
	Connected    = "connected"
	Disconnected = "disconnected"
	Alarm        = "alarm"    // of the equipment
	Responded    = "response" // of the equipment to an alarm of a chamber
	Notice       = "notice"
	Taken        = stateTaken      // the run is durable
	Incomplete   = stateIncomplete // samples of the run are missing: it is not judged
	Refused      = stateRefused    // the run can't be stored
)

// Report is something that people should know.
type Report struct {
	What string
	Tool string
	Run  string // tool:chamber/context, if it is about a run
	Text string
}

func (r Report) String() string {
	text := r.What + " " + r.Tool
	if r.Run != "" {
		text = r.What + " " + r.Run
	}
	if r.Text != "" {
		text += ": " + r.Text
	}
	return text
}

// Host collects from the tools of a plan.
type Host struct {
	config   Config
	sessions map[string]*session // by tool; fixed when the host is made

	unloadInterval time.Duration // the constant, except in tests
}

// New returns a host.
func New(c Config) *Host {
	if c.Report == nil {
		c.Report = func(Report) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Host{config: c, sessions: map[string]*session{}, unloadInterval: unloadInterval}
	for _, tool := range c.Plan.Tools {
		h.sessions[tool.Name] = h.session(tool)
	}
	return h
}

// Run collects until ctx ends, and then returns nil once what was finished is durable. It
// ends earlier with the error of a ledger that can't be written.
func (h *Host) Run(ctx context.Context) error {
	if err := h.resume(ctx); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var collecting sync.WaitGroup
	for _, tool := range h.config.Plan.Tools {
		collecting.Go(func() { h.collect(ctx, tool, fail) })
	}
	collecting.Wait()
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// resume concludes the runs that were open when the host ended last.
func (h *Host) resume(ctx context.Context) error {
	for _, e := range h.config.Ledger.unfinished() {
		o := Outcome{Ref: e.Ref}
		var err error
		if e.State == stateEnded {
			o.Trace, err = h.stored(ctx, e.Ref.TChart())
		}
		if err != nil {
			return fmt.Errorf("looking for run %s, which was open: %w", e.Ref.TChart(), err)
		}
		if o.Trace == nil {
			err = h.conclude(o, stateIncomplete, "the host ended before the run was durable")
		} else { // the host may have died before it announced the run
			err = h.deliver(ctx, o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stored returns the T-chart of a run, nil if there is none.
func (h *Host) stored(ctx context.Context, key defender.TChartKey) (*tchart.Trace, error) {
	blob, err := h.config.Store.TChart(ctx, key)
	if errors.Is(err, defender.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return tchart.Decode(blob)
}

// collect collects from one tool until ctx ends.
func (h *Host) collect(ctx context.Context, tool Tool, fail func(error)) {
	s := h.sessions[tool.Name]
	s.fail = fail
	s.courier = newCourier(ctx, h, fail)
	defer s.courier.close()
	dialer := hsms.Dialer{Address: tool.Address, Config: hsms.Config{Session: tool.Session, Timers: s.kind.Timers.hsms(), Logger: h.config.Logger}}
	for ctx.Err() == nil {
		conn, err := dialer.Dial(ctx)
		if err == nil {
			err = s.serve(ctx, conn)
		}
		if ctx.Err() == nil {
			s.linkFailed()
			s.down(err)
		}
	}
	for _, c := range s.chambers {
		c.cutter.stop("the host ended before the run did")
		if err := s.settle(c); err != nil {
			fail(err)
		}
	}
}

// session returns what the host knows of a tool that it has not connected to yet.
func (h *Host) session(tool Tool) *session {
	kind := h.config.Plan.Types[tool.Type]
	s := &session{
		host: h, tool: tool, kind: &kind, spools: kind.Spool == nil || *kind.Spool,
		events: map[uint32]*chamberState{}, traces: map[uint32]*chamberState{}, again: make(chan struct{}, 1),
	}
	for _, name := range slices.Sorted(maps.Keys(kind.Chambers)) {
		s.add(name, kind.Chambers[name])
	}
	return s
}
