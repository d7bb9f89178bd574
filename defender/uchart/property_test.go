package uchart_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// sampled makes contexts of a chamber that is sampled on a fixed grid and whose first
// SVID is a setpoint. Such chambers have the same duration and the same first
// statistics, whatever else they do; only levels and correlations differ.
func sampled(seed uint64, n int, shift func(run int) float64) []*uchart.Chart {
	rng := rand.New(rand.NewPCG(seed, 1))
	var level [3]float64
	for i := range level {
		level[i] = 500 + 50*rng.NormFloat64()
	}
	charts := make([]*uchart.Chart, n)
	for run := range charts {
		const rows = 60
		tr := &tchart.Trace{SVIDs: []string{"setpoint", "a", "b", "c"}, Values: make([][]float64, 4)}
		common, by := rng.NormFloat64(), shift(run)
		var own [3]float64
		for i := range own {
			own[i] = level[i] + common + 0.3*rng.NormFloat64()
		}
		for i := range rows {
			tr.Time = append(tr.Time, float64(i))
			tr.Step = append(tr.Step, int32(4+i*2/rows))
			tr.Values[0] = append(tr.Values[0], 751)
			for s := range own {
				tr.Values[1+s] = append(tr.Values[1+s], own[s]+2*rng.NormFloat64())
			}
			tr.Values[1][i] += by
		}
		c, err := uchart.Compute(tr)
		if err != nil {
			panic(err)
		}
		charts[run] = c
	}
	return charts
}

func undisturbed(int) float64 { return 0 }

// stream judges contexts one after another, as a defender does that has the newest
// hundred in memory.
type stream struct {
	name    func(run int) string
	history []uchart.Point
}

func (s *stream) next(j func([]uchart.Point, *uchart.Chart) uchart.Verdict, chart *uchart.Chart) uchart.Verdict {
	v := j(s.history[max(0, len(s.history)-100):], chart)
	p := uchart.NewPoint(s.name(len(s.history)), chart, v)
	for _, h := range s.history {
		if v.Limits.At != "" && h.Context == v.Limits.At {
			p.Baseline = h.Baseline
		}
	}
	s.history = append(s.history, p)
	return v
}

func text(t testing.TB, v uchart.Verdict) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func numbered(run int) string { return fmt.Sprintf("run%04d", run) }

func propertyPolicies() map[string]uchart.Policy {
	m := uchart.MultivariatePolicy{FalseAlarms: 0.005}
	reference := m
	reference.Reference = 4
	return map[string]uchart.Policy{
		"frozen and principal components": {FalseAlarms: 0.005, Frozen: uchart.FrozenPolicy{Contexts: 50, CUSUM: uchart.CUSUMPolicy{K: 0.5}}, Multivariate: m},
		"moving and principal components": {FalseAlarms: 0.005, Multivariate: reference},
		"principal components":            {NoUnivariate: true, Multivariate: m},
	}
}

// TestVerdict/depends-on-its-own-chamber-alone judges several chambers, interleaved at
// random, in one process. Each verdict has to be, to the bit, what a process gives
// that has this chamber only.
func TestVerdict(t *testing.T) {
	t.Parallel()
	t.Run("depends-on-its-own-chamber-alone", func(t *testing.T) {
		t.Parallel()
		for name, policy := range propertyPolicies() {
			for seed := range uint64(3) {
				const chambers, runs = 4, 80
				shared := uchart.Judger{Policy: policy}
				var charts [chambers][]*uchart.Chart
				var alone [chambers][]string
				for c := range charts {
					charts[c] = sampled(100*seed+uint64(c), runs, undisturbed)
					own, s := uchart.Judger{Policy: policy}, stream{name: numbered}
					for _, chart := range charts[c] {
						alone[c] = append(alone[c], text(t, s.next(own.Judge, chart)))
					}
				}
				rng := rand.New(rand.NewPCG(seed, 2))
				var streams [chambers]stream
				different := 0
				for left := chambers * runs; left > 0; left-- {
					c := rng.IntN(chambers)
					for len(streams[c].history) == runs {
						c = (c + 1) % chambers
					}
					streams[c].name = numbered
					run := len(streams[c].history)
					if got := text(t, streams[c].next(shared.Judge, charts[c][run])); got != alone[c][run] {
						if different++; different == 1 {
							t.Errorf("%s: chamber %d, run %d: judged beside others it is\n%.300s\nalone\n%.300s", name, c, run, got, alone[c][run])
						}
					}
				}
				if different > 0 {
					t.Errorf("%s, seed %d: %d of %d verdicts depend on what else the process has judged", name, seed, different, chambers*runs)
				}
			}
		}
	})
	t.Run("depends-on-data-and-order-and-not-on-names", func(t *testing.T) {
		t.Parallel()
		for name, policy := range propertyPolicies() {
			charts := sampled(7, 180, func(run int) float64 {
				if run%40 == 39 {
					return 12
				}
				return 0
			})
			judge := func(naming func(int) string) []string {
				j, s := uchart.Judger{Policy: policy}, stream{name: naming}
				var out []string
				for _, chart := range charts {
					v := s.next(j.Judge, chart)
					// Names are told, as names: they may differ, in a verdict of the same run.
					x := text(t, v)
					for run := len(s.history) - 1; run >= 0; run-- {
						x = strings.ReplaceAll(x, `"`+s.history[run].Context+`"`, fmt.Sprintf(`"run %d"`, run))
					}
					out = append(out, x)
				}
				return out
			}
			want := judge(numbered)
			for salt := range uint64(5) {
				rng := rand.New(rand.NewPCG(salt, 3))
				names := make([]string, len(charts))
				for i, at := range rng.Perm(len(charts)) {
					names[i] = fmt.Sprintf("%x-%d", salt, at)
				}
				different := 0
				for run, got := range judge(func(run int) string { return names[run] }) {
					if got != want[run] {
						if different++; different == 1 {
							t.Errorf("%s: run %d: renamed it is\n%.300s\nwas\n%.300s", name, run, got, want[run])
						}
					}
				}
				if different > 0 {
					t.Errorf("%s, renaming %d: %d of %d verdicts differ", name, salt, different, len(charts))
				}
			}
		}
	})
	t.Run("schedules-models-by-stored-numbers-and-not-by-what-it-sees", func(t *testing.T) {
		t.Parallel()
		policy := propertyPolicies()["principal components"]
		j, s := uchart.Judger{Policy: policy}, stream{name: numbered}
		models := map[string]bool{}
		for run, chart := range sampled(11, 160, undisturbed) {
			v := s.next(j.Judge, chart)
			before := s.history[:run]
			if run < 100 {
				continue
			}
			models[v.Multivariate.Model.Last] = true
			// 50 contexts, and at most 15 since, are all that the model rests on.
			for _, seen := range []int{75, 90, 100} {
				if got := text(t, uchart.Judge(before[run-seen:], chart, policy)); got != text(t, v) {
					t.Fatalf("run %d: by a history of %d contexts the verdict is\n%s\nby that of 100\n%s", run, seen, got, text(t, v))
				}
			}
		}
		if len(models) < 4 || len(models) > 5 {
			t.Errorf("%d models serve 60 contexts, want one for 16", len(models))
		}
	})
}
