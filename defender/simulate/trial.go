package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
)

// sizes are how much is simulated of each process.
type sizes struct {
	chambers, runs int
	// A wafer is given each fault, judged, and forgotten: every probeEvery runs from the
	// run probeFrom on.
	probeFrom, probeEvery int
	// From each of these runs on a fault lasts, up to lasting runs.
	onsets  []int
	lasting int
}

var (
	full  = sizes{chambers: 40, runs: 200, probeFrom: 60, probeEvery: 10, onsets: []int{61, 106, 151}, lasting: 25}
	quick = sizes{chambers: 4, runs: 80, probeFrom: 60, probeEvery: 10, onsets: []int{61}, lasting: 5}
)

// soon is how many runs a lasting fault may last to count as found soon.
const soon = 5

// tally counts the runs of one chamber.
type tally struct {
	judged, alarms [len(phases)]int
	single, t2, q  int // alarms by what raised them, of all phases
	probes         int
	found          []int // of the probes, by fault
	onsets         int
	soon, ever     []int // of the onsets, by fault
}

// phases are spans of runs of which false alarms are told apart; a run belongs to the
// first whose end it isn't after.
var phases = [...]struct {
	name string
	end  int
}{{"to 50", 50}, {"51-100", 100}, {"from 101", 1 << 30}}

func phaseOf(number int) int {
	for i, p := range phases {
		if number <= p.end {
			return i
		}
	}
	return len(phases) - 1
}

// A judge judges the runs of one chamber as a defender does: by a set of strategies and the
// history that follows from the verdicts before.
type judge struct {
	set     *strategy.Set
	history uchart.History
	calc    uchart.Calculator
	known   []judged
}

// judged is a run that the history knows.
type judged struct {
	ref     defender.ContextRef
	chart   *uchart.Chart
	verdict uchart.Verdict
}

func newJudge(set *strategy.Set) *judge {
	st, _ := set.Of(refOf(1, ""))
	return &judge{set: set, history: uchart.History{ClearAfter: st.ClearAfter()}}
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func refOf(number int, lot string) defender.ContextRef {
	at := start.Add(time.Duration(number) * 20 * time.Minute)
	return defender.ContextRef{Chamber: defender.Chamber{Tool: "simulated", Name: "chamber1"}, ID: fmt.Sprintf("run%04d", number),
		Recipe: "etch", Lot: lot, Start: at, End: at.Add(10 * time.Minute)}
}

// judge concludes on a run; remember has later ones judged by it.
func (j *judge) judge(number int, r run, remember bool) (uchart.Verdict, error) {
	chart, err := j.calc.Compute(r.trace)
	if err != nil {
		return uchart.Verdict{}, fmt.Errorf("computing the statistics of run %d: %w", number, err)
	}
	ref := refOf(number, r.lot)
	v := j.set.Judge(ref, j.history.Points(), chart)
	if remember {
		j.add(judged{ref, chart, v})
	}
	return v, nil
}

func (j *judge) add(run judged) {
	j.history.Add(run.ref.ID, run.chart, run.verdict)
	j.known = append(j.known, run)
}

// before returns a judge that has seen the runs before a number only.
func (j *judge) before(number int) *judge {
	earlier := newJudge(j.set)
	for _, run := range j.known[:number-1] {
		earlier.add(run)
	}
	return earlier
}

// trial simulates one chamber of a process.
func trial(set *strategy.Set, p process, s sizes, seed uint64, number int) (tally, error) {
	n := len(faults())
	t := tally{found: make([]int, n), soon: make([]int, n), ever: make([]int, n)}
	c, j := newChamber(p, seed, number), newJudge(set)
	runs := make([]run, 0, s.runs+s.lasting)
	for range s.runs + s.lasting {
		runs = append(runs, c.draw())
	}
	for i, r := range runs[:s.runs] {
		if i+1 >= s.probeFrom && (i+1-s.probeFrom)%s.probeEvery == 0 {
			if err := t.probe(j, i+1, r); err != nil {
				return t, err
			}
		}
		v, err := j.judge(i+1, r, true)
		if err != nil {
			return t, err
		}
		t.count(i+1, v)
	}
	for _, onset := range s.onsets {
		t.onsets++
		for f, fault := range faults() {
			after, err := delay(j.before(onset), runs, onset, s.lasting, fault)
			if err != nil {
				return t, err
			}
			if after > 0 {
				t.ever[f]++
			}
			if after > 0 && after <= soon {
				t.soon[f]++
			}
		}
	}
	return t, nil
}

// count counts a run of the undisturbed process.
func (t *tally) count(number int, v uchart.Verdict) {
	if v.State == uchart.Learning {
		return
	}
	phase := phaseOf(number)
	t.judged[phase]++
	if v.State != uchart.Alarm {
		return
	}
	t.alarms[phase]++
	if v.Violated > 0 {
		t.single++
	}
	if m := v.Multivariate; m != nil && m.T2 > m.T2Limit {
		t.t2++
	}
	if m := v.Multivariate; m != nil && m.Q > m.QLimit {
		t.q++
	}
}

// probe judges a run with each fault, and forgets it.
func (t *tally) probe(j *judge, number int, r run) error {
	t.probes++
	for f, fault := range faults() {
		v, err := j.judge(number, r.shifted(fault), false)
		if err != nil {
			return err
		}
		if v.State == uchart.Alarm {
			t.found[f]++
		}
	}
	return nil
}

// delay returns with which run of a lasting fault it is found, from 1 on; 0 if it isn't.
func delay(j *judge, runs []run, onset, lasting int, f fault) (int, error) {
	for i := range lasting {
		number := onset + i
		v, err := j.judge(number, runs[number-1].shifted(f), true)
		if err != nil {
			return 0, err
		}
		if v.State == uchart.Alarm {
			return i + 1, nil
		}
	}
	return 0, nil
}

// simulate returns the tally of each chamber of a process. Chambers are simulated side by
// side and depend on seed and number alone.
func simulate(set *strategy.Set, p process, s sizes, seed uint64) ([]tally, error) {
	tallies, errs := make([]tally, s.chambers), make([]error, s.chambers)
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for n := range numbers {
				tallies[n], errs[n] = trial(set, p, s, seed, n)
			}
		})
	}
	for n := range s.chambers {
		numbers <- n
	}
	close(numbers)
	workers.Wait()
	for n, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("simulating chamber %d of %q: %w", n, p.name, err)
		}
	}
	return tallies, nil
}
