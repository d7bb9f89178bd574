package defender_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
)

// rejects is a store that rejects the fence of whatever is committed.
type rejects struct {
	defender.Store
	on *bool
}

func (r rejects) Commit(ctx context.Context, f defender.Fence, res defender.Result) (defender.CommitOutcome, error) {
	if *r.on {
		return defender.CommitOutcome{}, fmt.Errorf("committing: %w", defender.ErrFenced)
	}
	return r.Store.Commit(ctx, f, res)
}

// counted returns the value of a counter.
func counted(t *testing.T, m *defender.Metrics, name string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(m.Collectors()...)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestFenceRejection: that a worker's fence is rejected says nothing of the message.
// It is no failed attempt, and makes no dead letter.
func TestFenceRejection(t *testing.T) {
	t.Parallel()
	const times = 10
	for name, rejected := range map[string]func(s *stage, c *defender.Config) (accept func()){
		"when history is read": func(s *stage, _ *defender.Config) func() {
			if err := s.store.RaiseFence(s.t.Context(), etcher, defender.Fence{MapVersion: later.Version, ClaimRevision: later.Claim}); err != nil {
				s.t.Fatal(err)
			}
			return func() {}
		},
		"when the result is stored": func(s *stage, c *defender.Config) func() {
			on := true
			c.Store = rejects{s.store, &on}
			return func() { on = false }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, metrics := newStage(t), defender.NewMetrics(nil)
			var accept func()
			d := s.defender(func(c *defender.Config) {
				c.Metrics = metrics
				accept = rejected(s, c)
			})
			m := s.context("run", new(trace.Generator).Wafer(0), now, first)
			for range times {
				if err := d.Handle(t.Context(), m); !errors.Is(err, defender.ErrFenced) || !errors.Is(err, partition.ErrFenced) {
					t.Fatalf("the worker is told %v, want a fence rejection", err)
				}
			}
			if n := counted(t, metrics, "defender_fence_rejections_total"); n != times {
				t.Errorf("%v fence rejections are counted, want %d", n, times)
			}
			accept()
			m.Fence = later
			if err := d.Handle(t.Context(), m); err != nil || !s.last().Stored {
				t.Errorf("the owner's only attempt: %v", err)
			}
		})
	}
}

// TestForgedMap: somebody who may write the bucket puts a valid map there that gives every
// slot to one worker. Results may be rejected until the group has raised its fences, but no
// message becomes a dead letter.
func TestForgedMap(t *testing.T) {
	c := &crew{stage: newStage(t), done: map[string]bool{}}
	c.start(3)
	for range 5 {
		c.publish(1)
		c.until("everything is processed", c.all)
	}
	kv, err := c.js.KeyValue(t.Context(), defender.Group+"-assignments")
	if err != nil {
		t.Fatal(err)
	}
	const key = "assignment-map"
	e, err := kv.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	a, err := partition.Open(c.conn, defender.Group).Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	oldest := slices.IndexFunc(a.Workers, func(w report.Process) bool {
		return !slices.ContainsFunc(a.Workers, func(o report.Process) bool { return o.Claim < w.Claim })
	})

	var stored map[string]any
	if err := json.Unmarshal(e.Value(), &stored); err != nil {
		t.Fatal(err)
	}
	// In schema 2, which is still read, the columns are JSON: a byte for each slot with the
	// owner's index, plus one, and a byte with the version since which it is that.
	delete(stored, "columns")
	delete(stored, "inflated")
	var workers []map[string]any
	for _, w := range a.Workers {
		workers = append(workers, map[string]any{"id": w.ID, "claim": w.Claim})
	}
	stored["schema"], stored["workers"] = 2, workers
	stored["owner"] = bytes.Repeat([]byte{byte(oldest + 1)}, a.Slots)
	stored["since"] = bytes.Repeat([]byte{1}, a.Slots)
	stored["version"] = a.Version + 1
	forged, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(t.Context(), key, forged); err != nil {
		t.Fatal(err)
	}
	c.publish(10)
	c.until("everything is processed", c.all)
	now, err := partition.Open(c.conn, defender.Group).Map(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if now.Version <= a.Version {
		t.Errorf("the forged map was not believed: the map has version %d, and %d was forged", now.Version, a.Version+1)
	}
	dead, err := partition.Open(c.conn, defender.Group).DeadLetters(t.Context(), 0, 100)
	if err != nil || len(dead) != 0 {
		t.Errorf("of %d messages are dead letters: %+v, %v", c.published, dead, err)
	}
}
