package local

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// BenchmarkWrites measures what a tick waits for: a write of the record, an event, and an event as large as a snapshot.
func BenchmarkWrites(b *testing.B) {
	b.Run("record", func(b *testing.B) {
		s := benchmarked(b)
		each(b, func(n int) error {
			_, err := s.Apply(b.Context(), nodes.RenewLease{
				Owner: "w0", Fence: 1, Now: start.Add(time.Duration(1+n) * time.Second), TTL: time.Hour,
			})
			return err
		})
	})
	for name, data := range eventSizes() {
		b.Run(name, func(b *testing.B) {
			s := benchmarked(b)
			each(b, func(n int) error {
				return s.Append(b.Context(), nodes.Event{At: start, Tick: "t", Seq: n, Kind: "decision", Data: data})
			})
		})
	}
}

// eventSizes are an event of one line and one of a snapshot of some hundred nodes.
func eventSizes() map[string]json.RawMessage {
	snapshot := `["` + strings.Repeat(`ip-10-0-0-1 ready `, 10_000) + `"]`
	return map[string]json.RawMessage{"event": nil, "snapshot": json.RawMessage(snapshot)}
}

func benchmarked(b *testing.B) *Store {
	s, err := Open(b.Context(), b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	if _, err := s.Apply(b.Context(), nodes.AcquireLease{Owner: "w0", Now: start, TTL: time.Hour}); err != nil {
		b.Fatal(err)
	}
	return s
}

// each calls f once for each iteration and reports how long the slow ones take.
func each(b *testing.B, f func(n int) error) {
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := f(len(took)); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
