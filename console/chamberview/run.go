package chamberview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// What the console shows of a run.
const (
	runViolations = 12
	runOverlays   = 3
	runOthers     = 12  // runs before it behind its traces
	runPoints     = 300 // of a trace
)

// ReadRun reads one run of a chamber: what it was judged by, and the traces of the sensors that it was flagged for over those of earlier
// runs that were not.
//
// The error of a run that is not stored matches [console.ErrUnknownTarget].
func ReadRun(ctx context.Context, store defender.Store, ch defender.Chamber, id string) (console.Run, error) {
	if err := ch.Validate(); err != nil {
		return console.Run{}, fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	}
	u, err := store.UChart(ctx, ch, id)
	if errors.Is(err, defender.ErrNotFound) {
		return console.Run{}, fmt.Errorf("%w: chamber %s has no stored run %q", console.ErrUnknownTarget, ch, id)
	}
	if err != nil {
		return console.Run{}, err
	}
	v := runOf(u)
	sensors := flaggedFor(u.Verdict)
	if len(sensors) == 0 {
		return v, nil
	}
	recent, err := store.UCharts(ctx, ch, chartPoints+chartHistory)
	if err != nil {
		return v, err
	}
	v.Overlays, err = overlays(ctx, store, u, recent, sensors)
	return v, err
}

func runOf(u defender.UChart) console.Run {
	c, x := u.Context, u.Verdict
	v := console.Run{Tool: c.Chamber.Tool, Chamber: c.Chamber.Name, Run: c.ID, Recipe: c.Recipe, Start: c.Start, End: c.End, State: x.State.String(), Reason: x.Reason(),
		Score: x.Score, ScoreLimit: x.ScoreLimit, Violated: x.Violated, Violations: []console.Violation{}, Overlays: []console.Overlay{}}
	for _, o := range x.Violations[:min(runViolations, len(x.Violations))] {
		v.Violations = append(v.Violations, console.Violation{SVID: o.SVID, Step: o.Step, Stat: o.Statistic.String(), Value: o.Value, Lower: o.Lower, Centre: o.Center, Upper: o.Upper, Sigmas: o.Sigmas})
	}
	if m := x.Multivariate; m != nil {
		v.Multivariate = &console.Multivariate{T2: m.T2, T2Limit: m.T2Limit, Q: m.Q, QLimit: m.QLimit, By: []console.Contribution{}}
		for _, b := range m.By {
			v.Multivariate.By = append(v.Multivariate.By, console.Contribution{SVID: b.SVID, Step: b.Step, Stat: b.Statistic.String(), Share: b.Share})
		}
	}
	return v
}

// flaggedFor returns the sensors that a run was flagged for, the worst first.
func flaggedFor(x uchart.Verdict) (sensors []string) {
	add := func(svid string) {
		if len(sensors) < runOverlays && !slices.Contains(sensors, svid) {
			sensors = append(sensors, svid)
		}
	}
	if m := x.Multivariate; m != nil && m.Out() {
		for _, b := range m.By[:min(1, len(m.By))] {
			add(b.SVID)
		}
	}
	for _, o := range x.Violations {
		add(o.SVID)
	}
	for _, o := range x.Signals {
		add(o.SVID)
	}
	return sensors
}

// overlays reads the traces of a run and of the unflagged ones of its recipe before it. One that expired is left out.
func overlays(ctx context.Context, store defender.Store, u defender.UChart, recent []defender.UChart, sensors []string) ([]console.Overlay, error) {
	runs := []defender.UChart{}
	for _, other := range recent { // newest first
		before := other.Context.End.Before(u.Context.End) && other.Context.Recipe == u.Context.Recipe
		if before && !other.Verdict.Flagged() && len(runs) < runOthers {
			runs = append(runs, other)
		}
	}
	slices.Reverse(runs)
	out := make([]console.Overlay, len(sensors))
	for i, svid := range sensors {
		out[i] = console.Overlay{SVID: svid, Traces: []console.Trace{}}
	}
	for _, run := range append(runs, u) {
		blob, err := store.TChart(ctx, run.Context.TChart())
		if errors.Is(err, defender.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t, err := tchart.Decode(blob)
		if err != nil {
			return nil, fmt.Errorf("reading the trace of run %s: %w", run.Context.ID, err)
		}
		for i, svid := range sensors {
			if x, ok := traceOf(t, svid); ok {
				x.Run = run.Context.ID
				out[i].Traces = append(out[i].Traces, x)
			}
		}
	}
	return out, nil
}

// traceOf returns a sensor's trace since the run's beginning, thinned.
func traceOf(t *tchart.Trace, svid string) (x console.Trace, ok bool) {
	at := slices.Index(t.SVIDs, svid)
	if at < 0 || len(t.Time) == 0 {
		return x, false
	}
	stride := cmp.Or((len(t.Time)+runPoints-1)/runPoints, 1)
	for i := 0; i < len(t.Time); i += stride {
		seconds := t.Time[i] - t.Time[0]
		if math.IsNaN(seconds) || math.IsInf(seconds, 0) {
			continue
		}
		x.Seconds = append(x.Seconds, seconds)
		if v := t.Values[at][i]; math.IsNaN(v) || math.IsInf(v, 0) {
			x.Values = append(x.Values, nil)
		} else {
			x.Values = append(x.Values, &v)
		}
	}
	return x, true
}
