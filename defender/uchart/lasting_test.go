package uchart_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// fab is one chamber with a defender: six sensors in two steps, sampled on a fixed grid,
// with noise of 1 between contexts and of 2 between samples.
type fab struct {
	rng     *rand.Rand
	judge   uchart.Judger
	history uchart.History
	run     int
}

func newFab(policy uchart.Policy) *fab {
	return &fab{rng: rand.New(rand.NewPCG(17, 4)), judge: uchart.Judger{Policy: policy}}
}

func (f *fab) next(t testing.TB, change func(run int, tr *tchart.Trace)) uchart.Verdict {
	t.Helper()
	const rows, sensors = 50, 6
	tr := &tchart.Trace{}
	for s := range sensors {
		tr.SVIDs = append(tr.SVIDs, fmt.Sprint("S", s))
		tr.Values = append(tr.Values, make([]float64, rows))
		level := 500 + f.rng.NormFloat64()
		for i := range rows {
			tr.Values[s][i] = level + 2*f.rng.NormFloat64()
		}
	}
	for i := range rows {
		tr.Time, tr.Step = append(tr.Time, float64(i)), append(tr.Step, int32(1+i*2/rows))
	}
	f.run++
	change(f.run, tr)
	chart := chartOf(t, tr)
	return f.history.Add(fmt.Sprint("run", f.run), chart, f.judge.Judge(f.history.Points(), chart))
}

func add(tr *tchart.Trace, svid int, by float64) {
	for i := range tr.Values[svid] {
		tr.Values[svid][i] += by
	}
}

func fabPolicies() map[string]uchart.Policy {
	m := uchart.MultivariatePolicy{FalseAlarms: 0.005}
	return map[string]uchart.Policy{
		"default":     {FalseAlarms: 0.005, Frozen: uchart.FrozenPolicy{Contexts: 50}, Multivariate: m},
		"moving":      {FalseAlarms: 0.005, Multivariate: m},
		"single only": {FalseAlarms: 0.005},
		"T2 and Q":    {NoUnivariate: true, Multivariate: m},
	}
}

// TestLastingFault lets a fault of 20 sigma begin and stay for 250 contexts, with limits
// frozen, moving, about to be frozen, and of principal components alone. The alarm has to
// stand all the time, and to be cleared when the process is again as it was before.
func TestLastingFault(t *testing.T) {
	t.Parallel()
	for name, policy := range fabPolicies() {
		for _, from := range []int{31, 81, 131} {
			t.Run(fmt.Sprintf("stays-an-alarm/%s-from-%d", strings.ReplaceAll(name, " ", "-"), from), func(t *testing.T) {
				t.Parallel()
				f := newFab(policy)
				states := map[uchart.State]int{}
				first, opened := "", ""
				for range from + 249 {
					v := f.next(t, func(run int, tr *tchart.Trace) {
						if run >= from {
							add(tr, 2, 20)
						}
					})
					if f.run < from {
						continue
					}
					if f.run == from && v.Standing != nil {
						opened = v.Standing.Opened
					}
					states[v.State]++
					if v.State != uchart.Alarm && first == "" {
						first = fmt.Sprintf("run %d is %s", f.run, v.State)
					}
					if v.Standing == nil || v.Standing.Opened != opened {
						t.Fatalf("run %d is %s and the alarm of %s doesn't stand: %+v", f.run, v.State, opened, v.Standing)
					}
				}
				if states[uchart.Alarm] != 250 {
					t.Errorf("a fault from run %d on is %v, and %s", from, states, first)
				}
				for range 10 {
					v := f.next(t, func(int, *tchart.Trace) {})
					if v.State == uchart.Learning {
						t.Errorf("run %d, after the fault, is %s", f.run, v.State)
					}
					if v.Standing == nil {
						return
					}
				}
				t.Error("the alarm stands ten runs after the fault is gone")
			})
		}
	}
}

// TestFaultAtTheLimit: a fault that every second context shows isn't learned from those
// that don't.
func TestFaultAtTheLimit(t *testing.T) {
	t.Parallel()
	for name, policy := range fabPolicies() {
		t.Run("isn't-learned-while-its-alarm-stands/"+strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			f := newFab(policy)
			f.history.ClearAfter = 6 // three in a row that are inside by chance don't clear it
			late := 0
			for range 400 {
				v := f.next(t, func(run int, tr *tchart.Trace) {
					if run > 80 {
						add(tr, 2, 3+5*float64(run%2)) // inside, and outside
					}
				})
				if f.run > 350 && v.State == uchart.Alarm {
					late++
				}
			}
			if late < 10 {
				t.Errorf("after 270 contexts of it the fault raises %d alarms in 50", late)
			}
		})
	}
}

// TestDeadSensor lets a sensor die in context 61, in several ways, and another one move by
// 50 sigma in context 71.
func TestDeadSensor(t *testing.T) {
	t.Parallel()
	nan := func(from int) func(tr *tchart.Trace) {
		return func(tr *tchart.Trace) {
			for i := from; i < len(tr.Time); i++ {
				tr.Values[1][i] = math.NaN()
			}
		}
	}
	for way, die := range map[string]func(tr *tchart.Trace){
		"no-values": nan(0),
		"half":      nan(10),
		"removed": func(tr *tchart.Trace) {
			tr.SVIDs = append(tr.SVIDs[:1:1], tr.SVIDs[2:]...)
			tr.Values = append(tr.Values[:1:1], tr.Values[2:]...)
		},
		"too-large": func(tr *tchart.Trace) {
			for i := range tr.Values[1] {
				tr.Values[1][i] = math.Copysign(math.MaxFloat64, float64(i%2)-0.5)
			}
		},
	} {
		for name, policy := range fabPolicies() {
			t.Run(fmt.Sprintf("blinds-nothing-else/%s/%s", way, strings.ReplaceAll(name, " ", "-")), func(t *testing.T) {
				t.Parallel()
				f := newFab(policy)
				for range 200 {
					v := f.next(t, func(run int, tr *tchart.Trace) {
						if run > 70 {
							add(tr, 3, 50)
						}
						if run > 60 {
							die(tr)
						}
					})
					if f.run <= 60 {
						continue
					}
					if !strings.Contains(v.Reason(), `SVID "S1"`) || !v.Flagged() {
						t.Fatalf("run %d is %s and doesn't name the sensor: %q", f.run, v.State, v.Reason())
					}
					if v.Multivariate == nil && policy.Multivariate.FalseAlarms > 0 || v.Charts == 0 && !policy.NoUnivariate {
						t.Fatalf("run %d: other sensors aren't judged: %+v", f.run, v)
					}
					if f.run > 70 && v.State != uchart.Alarm {
						t.Fatalf("run %d: 50 sigma of another sensor are %s: %s", f.run, v.State, v.Reason())
					}
					for _, x := range v.Violations {
						if x.SVID == "S1" {
							t.Fatalf("run %d: the dead sensor is judged: %s", f.run, x)
						}
					}
				}
			})
		}
	}
}

// TestRestingSensor changes a sensor that never moved.
func TestRestingSensor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		behaviour string
		rests     float64
		change    func(rng *rand.Rand, i int) float64
		state     uchart.State
	}{
		{"goes-to-40", 0, func(*rand.Rand, int) float64 { return 40 }, uchart.Alarm},
		{"goes-to-40-and-is-noisy", 0, func(rng *rand.Rand, _ int) float64 { return 40 + 10*rng.NormFloat64() }, uchart.Alarm},
		{"goes-to-40-in-the-middle", 0, func(_ *rand.Rand, i int) float64 { return 40 * float64(i/12%2) }, uchart.Alarm},
		{"ramps-to-40", 0, func(_ *rand.Rand, i int) float64 { return 0.8 * float64(i) }, uchart.Alarm},
		{"changes-by-a-last-digit", 751, func(*rand.Rand, int) float64 { return 752 }, uchart.Normal},
		{"changes-by-less-than-a-digit", 751, func(*rand.Rand, int) float64 { return 751.0001 }, uchart.Normal},
		{"changes-by-a-last-decimal", 0.25, func(*rand.Rand, int) float64 { return 0.26 }, uchart.Normal},
		{"changes-by-many-decimals", 0.25, func(*rand.Rand, int) float64 { return 0.5 }, uchart.Alarm},
		{"changes-by-the-rounding-of-a-sum", 0.1 + 0.2, func(*rand.Rand, int) float64 { return 0.3 }, uchart.Normal},
		{"leaves-its-set-point", 751, func(*rand.Rand, int) float64 { return 761 }, uchart.Alarm},
		{"moves-for-a-moment", 751, func(_ *rand.Rand, i int) float64 { return 751 + float64(i/49) }, uchart.Normal},
	} {
		for name, policy := range fabPolicies() {
			for _, before := range []int{30, 60, 120} {
				t.Run(fmt.Sprintf("%s/%s/%d", test.behaviour, strings.ReplaceAll(name, " ", "-"), before), func(t *testing.T) {
					t.Parallel()
					f := newFab(policy)
					rest := func(change bool) func(int, *tchart.Trace) {
						return func(_ int, tr *tchart.Trace) {
							for i := range tr.Values[5] {
								tr.Values[5][i] = test.rests
								if change {
									tr.Values[5][i] = test.change(f.rng, i)
								}
							}
						}
					}
					for range before {
						f.next(t, rest(false))
					}
					v := f.next(t, rest(true))
					if v.State != test.state || v.State == uchart.Alarm && (len(v.Violations) == 0 || v.Violations[0].SVID != "S5") {
						t.Errorf("it is %s, want %s: %s, score %.4g over %.4g", v.State, test.state, v.Reason(), v.Score, v.ScoreLimit)
					}
				})
			}
		}
	}
}
