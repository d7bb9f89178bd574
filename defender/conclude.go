package defender

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

var errBadTChart = errors.New("the T-chart can't be used")

// concluder turns T-charts into verdicts, as many at a time as there are turns.
type concluder struct {
	turns      chan struct{}
	strategies Strategies
	metrics    *Metrics
	scratch    sync.Pool // of *scratch
}

func newConcluder(c Config) *concluder {
	k := &concluder{turns: c.Turns, strategies: c.Strategies, metrics: c.Metrics}
	k.scratch.New = func() any { return &scratch{decoder: tchart.Decoder{MaxPoints: c.MaxPoints}} }
	return k
}

// conclude decodes a T-chart, computes its statistics and judges them, when it is
// its turn: all that is done between is the processor's work.
func (k *concluder) conclude(ctx context.Context, ref ContextRef, blob []byte, history past) (*uchart.Chart, uchart.Verdict, error) {
	select {
	case k.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, uchart.Verdict{}, ctx.Err()
	}
	defer func() { <-k.turns }()
	begun := time.Now()
	s := k.scratch.Get().(*scratch)
	chart, err := s.compute(blob)
	k.scratch.Put(s) // not after a panic: what it holds is half done then
	if err != nil {
		return nil, uchart.Verdict{}, fmt.Errorf("%w: %s: %w", errBadTChart, ref.TChart(), err)
	}
	k.metrics.calculating.Observe(time.Since(begun).Seconds())
	begun = time.Now()
	verdict := k.strategies.Judge(ref, history.points, chart)
	k.metrics.judging.Observe(time.Since(begun).Seconds())
	return chart, verdict, nil
}

// scratch holds what decoding and computing a T-chart can use again.
type scratch struct {
	decoder    tchart.Decoder
	trace      tchart.Trace
	calculator uchart.Calculator
}

// compute decodes a T-chart and computes its statistics.
func (s *scratch) compute(blob []byte) (*uchart.Chart, error) {
	if err := s.decoder.Decode(blob, &s.trace); err != nil {
		return nil, err
	}
	return s.calculator.Compute(&s.trace)
}
