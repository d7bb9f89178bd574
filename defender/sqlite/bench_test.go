package sqlite_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/storetest"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// etchResult returns a result of the usual size: 19 SVIDs, 2 steps.
func etchResult(b *testing.B) defender.Result {
	w := (&trace.Generator{}).Wafer(0)
	chart, err := uchart.Compute(&w.Trace)
	if err != nil {
		b.Fatal(err)
	}
	r := result(0)
	r.UChart.Chart = chart
	return r
}

// BenchmarkCommit has 32 goroutines, each with a chamber, commit at once.
func BenchmarkCommit(b *testing.B) {
	for _, d := range []sqlite.Durability{sqlite.Normal, sqlite.Full} {
		b.Run(d.String(), func(b *testing.B) {
			s, err := sqlite.Open(b.Context(), sqlite.Config{Path: filepath.Join(b.TempDir(), "m.db"), Durability: d})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			template := etchResult(b)
			var goroutine atomic.Int64
			b.SetParallelism((32 + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := template
				r.UChart.Context.Chamber.Name = fmt.Sprintf("chamber%d", goroutine.Add(1))
				for i := 0; pb.Next(); i++ {
					r.UChart.Context.ID = fmt.Sprintf("context-%d", i)
					r.UChart.Context.End = template.UChart.Context.End.Add(time.Duration(i) * time.Second)
					if out, err := s.Commit(b.Context(), fence(1), r); err != nil || !out.Stored {
						b.Error(out, err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}

// BenchmarkPutTChart has 8 goroutines store etch traces; with commits going on
// at the same time it shows what two files are good for.
func BenchmarkPutTChart(b *testing.B) {
	for _, commits := range []bool{false, true} {
		b.Run(fmt.Sprintf("commits=%t", commits), func(b *testing.B) {
			s := open(b, filepath.Join(b.TempDir(), "m.db"))
			defer s.Close()
			blob, err := tchart.Encode(&(&trace.Generator{}).Wafer(0).Trace)
			if err != nil {
				b.Fatal(err)
			}
			r := etchResult(b)
			var n atomic.Int64
			b.SetParallelism(8)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := r
				for pb.Next() {
					id := fmt.Sprintf("context-%d", n.Add(1))
					if err := s.PutTChart(b.Context(), defender.TChartKey{Chamber: chamber, Context: id}, blob, r.Expires); err != nil {
						b.Error(err)
						return
					}
					if !commits {
						continue
					}
					r.UChart.Context.ID = id
					if _, err := s.Commit(b.Context(), fence(1), r); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tcharts/s")
		})
	}
}

func BenchmarkHistory(b *testing.B) {
	s := open(b, filepath.Join(b.TempDir(), "m.db"))
	defer s.Close()
	r := etchResult(b)
	for i := range 200 {
		ref := storetest.NewResult(chamber, "etch", i, uchart.Normal).UChart.Context
		r.UChart.Context = ref
		if _, err := s.Commit(b.Context(), fence(1), r); err != nil {
			b.Fatal(err)
		}
	}
	q := defender.HistoryQuery{Chamber: chamber, Recipe: "etch", Before: r.UChart.Context.Position(), Limit: 25}
	for b.Loop() {
		if found, err := s.History(b.Context(), q); err != nil || len(found) != 25 {
			b.Fatal(len(found), err)
		}
	}
}
