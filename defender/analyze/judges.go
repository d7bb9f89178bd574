package analyze

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// judges judge the runs of different groups side by side, and those of a group one after the
// other in their order: each group has one judge.
type judges struct {
	set    *strategy.Set
	keep   Keep
	whole  *Verdicts
	ctx    context.Context // ends with the first error
	fail   context.CancelCauseFunc
	queues []chan judgement
	groups int // that have a judge
	alarms atomic.Int64
	done   sync.WaitGroup
}

// judgement is a run that is to be judged.
type judgement struct {
	group  *Group
	run    *Run
	number int // in its group, from 1
	trace  *tchart.Trace
}

// queued is how many runs may wait for a judge, each with its trace in memory.
const queued = 8

// startJudges starts as many judges as there are processors.
func startJudges(ctx context.Context, a *Analysis) *judges {
	j := &judges{set: a.Strategies, keep: a.Keep, whole: a.Whole, queues: make([]chan judgement, runtime.GOMAXPROCS(0))}
	j.ctx, j.fail = context.WithCancelCause(ctx)
	for i := range j.queues {
		j.queues[i] = make(chan judgement, queued)
		j.done.Go(func() { j.serve(j.queues[i]) })
	}
	return j
}

// judging is what the judge of a group remembers of it.
type judging struct {
	queue chan judgement
	past  uchart.History
	seen  map[string]bool // IDs of runs

	points  []uchart.Point // scratch: what the run at hand is judged by
	drifted *Run           // the newest run whose verdict tells of drift
}

// enter gives a new group its judge.
func (j *judges) enter(g *Group) *judging {
	st, _ := j.set.Of(g.ref(g.Runs[0]))
	queue := j.queues[j.groups%len(j.queues)]
	j.groups++
	return &judging{queue: queue, past: uchart.History{Limit: history, ClearAfter: st.ClearAfter()}, seen: map[string]bool{}}
}

// judge has a run judged, once those before it in its group are.
func (j *judges) judge(ctx context.Context, what judgement) error {
	select {
	case what.group.judging.queue <- what:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// wait waits until all runs are judged, and returns the first error.
func (j *judges) wait() error {
	for _, queue := range j.queues {
		close(queue)
	}
	j.done.Wait()
	err := context.Cause(j.ctx)
	j.fail(nil)
	return err
}

func (j *judges) serve(queue chan judgement) {
	var calc uchart.Calculator
	for what := range queue {
		if j.ctx.Err() != nil {
			continue // until the queue is closed
		}
		if err := j.conclude(&calc, what); err != nil {
			j.fail(err)
		}
	}
}

func (j *judges) conclude(calc *uchart.Calculator, what judgement) error {
	g, run := what.group, what.run
	chart, err := calc.Compute(what.trace)
	if err != nil {
		return fmt.Errorf("%s, run %s: %w", run.File, run.Context, err)
	}

	past := g.judging
	run.id = run.Context
	if past.seen[run.id] { // in several files, or of another wafer
		run.id = fmt.Sprintf("%s#%d", run.id, what.number)
	}
	past.seen[run.id] = true

	past.points = past.past.AppendPoints(past.points[:0])
	v := past.past.Add(run.id, chart, j.set.Judge(g.ref(run), past.points, chart))
	run.Reason = v.Reason()
	if v.State == uchart.Alarm {
		j.alarms.Add(1)
	}
	if j.whole != nil {
		if run.place, err = j.whole.add(&v); err != nil {
			return err
		}
	}
	run.Verdict = j.keep.of(&v)
	past.drift(run, j.keep)
	return nil
}

// drift has only the newest verdict of a group tell how far the group has drifted, where
// reasons are all that is kept: each run of a chamber that wanders may tell it.
func (past *judging) drift(run *Run, keep Keep) {
	if keep != KeepReasons || len(run.Verdict.Drift) == 0 {
		return
	}
	if before := past.drifted; before != nil {
		v := before.Verdict
		before.Verdict = reasons(v.State, v.Suspended, nil, v.Multivariate)
	}
	past.drifted = run
}
