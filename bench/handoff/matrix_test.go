package handoff

import (
	"slices"
	"testing"
	"time"
)

func TestBatchesAreOfOneStreamAndInOrder(t *testing.T) {
	var ms []message
	for n := range 5 {
		for key := range 3 {
			ms = append(ms, message{key, n})
		}
	}
	streamOf := func(key int) int { return key % 2 } // keys 0 and 2; key 1
	got := batches(ms, streamOf, 4)
	want := [][]message{
		{{0, 0}, {2, 0}, {0, 1}, {2, 1}}, {{0, 2}, {2, 2}, {0, 3}, {2, 3}}, {{1, 0}, {1, 1}, {1, 2}, {1, 3}},
		{{0, 4}, {2, 4}}, {{1, 4}},
	}
	slices.SortStableFunc(got, func(a, b []message) int { return len(b) - len(a) })
	slices.SortStableFunc(got[:3], func(a, b []message) int { return streamOf(a[0].key) - streamOf(b[0].key) })
	slices.SortStableFunc(got[3:], func(a, b []message) int { return len(b) - len(a) })
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the batches are %v, want %v", got, want)
	}
	if got := batches(nil, streamOf, 4); len(got) > 0 {
		t.Errorf("%v of no messages", got)
	}
}

func TestTheMatrixHasEveryContenderOnce(t *testing.T) {
	type row struct {
		name, sync string
		replicas   int
	}
	seen := map[row]bool{}
	kafka := 0
	for _, turn := range Matrix(1, false, "") {
		for _, c := range turn.Contenders {
			r := row{c.Name, c.Sync, c.Replicas}
			if seen[r] {
				t.Errorf("%+v is there twice", r)
			}
			seen[r] = true
			if c.kafka != nil {
				kafka++
			}
			if c.batched != (c.kafka == nil && c.Replicas == 1 && c.Sync == alwaysSync) {
				t.Errorf("%+v publishes in batches: %v", r, c.batched)
			}
			if c.shards > 0 && c.slots%c.shards != 0 {
				t.Errorf("%+v: %d shards do not divide %d slots", r, c.shards, c.slots)
			}
		}
	}
	if len(seen) != 38 || kafka != 8 {
		t.Errorf("%d rows, %d of Kafka", len(seen), kafka)
	}
	if got := Matrix(1, false, "no such contender"); got != nil {
		t.Errorf("%v", got)
	}
}

func TestALoadIsLighterForServersThatShareOrSync(t *testing.T) {
	l := Load{Rate: 800, Press: 400, Backlog: 8000, Work: time.Millisecond}
	for _, tt := range []struct {
		replicas int
		sync     string
		rate     int
	}{{1, defaultSync, 800}, {1, alwaysSync, 200}, {3, defaultSync, 400}, {3, alwaysSync, 100}} {
		if got := l.lighter(tt.replicas, tt.sync); got.Rate != tt.rate || got.Backlog != 10*tt.rate || got.Work != l.Work {
			t.Errorf("%d replicas, sync %s: %+v", tt.replicas, tt.sync, got)
		}
	}
}
