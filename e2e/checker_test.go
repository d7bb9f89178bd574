package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func pubs(keys ...string) []publication {
	var ps []publication
	for i, k := range keys {
		ps = append(ps, publication{Seq: uint64(i + 1), Key: k, At: int64(i)})
	}
	return ps
}

func TestExamineFindsWhatMustNotHappen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		pubs  []publication
		runs  []run
		ended map[string]int64
		want  findings
	}{
		{"all in order", pubs("a", "a", "b"), []run{{seq: 1, key: "a", start: 10, end: 20, ok: true}, {seq: 2, key: "a", start: 20, end: 30, ok: true}, {seq: 3, key: "b", start: 5, end: 50, ok: true}}, nil,
			findings{Published: 3, Completed: 3}},
		{"one was never begun", pubs("a", "b"), []run{{seq: 1, key: "a", start: 1, end: 2, ok: true}}, nil, findings{Published: 2, Completed: 1, Lost: 1}},
		{"one failed and was not tried again", pubs("a"), []run{{seq: 1, key: "a", start: 1, end: 2}}, nil, findings{Published: 1, Lost: 1}},
		{"two at once", pubs("a", "a"), []run{{seq: 1, key: "a", start: 10, end: 30, ok: true}, {seq: 2, key: "a", start: 20, end: 40, ok: true}}, nil,
			findings{Published: 2, Completed: 2, Concurrent: 1, OutOfOrder: 1}},
		{"the same one at once at two owners", pubs("a"), []run{{seq: 1, key: "a", start: 10, end: 30, ok: true, file: "x"}, {seq: 1, key: "a", start: 20, end: 40, ok: true, file: "y"}}, nil,
			findings{Published: 1, Completed: 1, Concurrent: 1, Duplicates: 1}},
		{"a later one first", pubs("a", "a"), []run{{seq: 2, key: "a", start: 10, end: 20, ok: true}, {seq: 1, key: "a", start: 30, end: 40, ok: true}}, nil,
			findings{Published: 2, Completed: 2, OutOfOrder: 1}},
		{"a killed one does not go on", pubs("a"), []run{{seq: 1, key: "a", start: 10, file: "x"}, {seq: 1, key: "a", start: 30, end: 40, ok: true, file: "y"}}, map[string]int64{"x": 25},
			findings{Published: 1, Completed: 1}},
		{"one that was not killed may", pubs("a"), []run{{seq: 1, key: "a", start: 10, file: "x"}, {seq: 1, key: "a", start: 30, end: 40, ok: true, file: "y"}}, nil,
			findings{Published: 1, Completed: 1, Concurrent: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := examine(c.pubs, c.runs, c.ended)
			got.LostKeys = nil
			if got.Published != c.want.Published || got.Completed != c.want.Completed || got.Lost != c.want.Lost || got.Concurrent != c.want.Concurrent ||
				got.OutOfOrder != c.want.OutOfOrder || got.Duplicates != c.want.Duplicates {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestReadRunsLeavesOutALineThatAKillCutOff(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	if err := os.WriteFile(path, []byte("s 10 defender-1 7 tool001:chamber1 3 false false 5\ne 20 defender-1 7 tool001:chamber1 3 true true 5\ns 30 defender-1 8 tool0"), 0o600); err != nil {
		t.Fatal(err)
	}
	rs, err := readRuns(path)
	if err != nil || len(rs) != 1 {
		t.Fatalf("got %v, %v; want one run", rs, err)
	}
	if r := rs[0]; r.start != 10 || r.end != 20 || !r.ok || !r.hit || r.slot != 3 || r.worker != "defender-1" || r.published != 5 {
		t.Errorf("got %+v", r)
	}
}

func TestAHandoffsPauseBeginsWithTheLaterOfCompletionAndPublish(t *testing.T) {
	t.Parallel()
	runs := []run{{worker: "old", seq: 1, key: "a", start: 100, end: 200, ok: true}, {worker: "new", seq: 2, key: "a", start: 260, end: 300, ok: true, hit: true}}
	if h := oneHandoff(runs, "old", "new", 150); h.pause != 60 || h.firsts != 1 || h.hits != 1 {
		t.Errorf("published before the completion: %+v", h)
	}
	runs[1].published = 250
	if h := oneHandoff(runs, "old", "new", 150); h.pause != 10 {
		t.Errorf("published after the completion: %+v", h)
	}
	if h := oneHandoff(runs[:1], "old", "new", 150); h.pause >= 0 {
		t.Errorf("nothing at the new owner: %+v", h)
	}
}

func TestDistributionIsOfTheNearestRank(t *testing.T) {
	t.Parallel()
	var ds []time.Duration
	for i := 100; i > 0; i-- {
		ds = append(ds, time.Duration(i)*time.Millisecond)
	}
	if d := distribution(ds); d.P50 != 50 || d.P99 != 99 || d.Max != 100 || d.N != 100 {
		t.Errorf("got %+v", d)
	}
	if d := distribution(nil); d.N != 0 || d.String() != "none" {
		t.Errorf("of nothing: %+v", d)
	}
}

func TestResumedKnowsWhatTheKillFoundUnderWay(t *testing.T) {
	t.Parallel()
	k := kill{at: time.Unix(0, 100)}
	ended := map[string]int64{"earlier": 50, "victim": 100}
	for _, c := range []struct {
		name    string
		runs    []run
		was, ok bool
		d       time.Duration
	}{
		{"nothing", nil, false, false, 0},
		{"done before", []run{{file: "victim", published: 10, start: 20, end: 30, ok: true}}, false, false, 0},
		{"cut off by this kill and begun elsewhere", []run{{file: "victim", published: 10, start: 90}, {file: "other", published: 10, start: 170, end: 180, ok: true}}, true, true, 70},
		{"cut off by this kill and never begun again", []run{{file: "victim", published: 10, start: 90}}, true, false, 0},
		{"cut off by an earlier kill", []run{{file: "earlier", published: 10, start: 40}, {file: "victim", published: 10, start: 60, end: 70, ok: true}}, false, false, 0},
		{"waited and began elsewhere", []run{{file: "other", published: 10, start: 130, end: 140, ok: true}}, true, true, 30},
		{"published after the kill", []run{{file: "other", published: 110, start: 130, end: 140, ok: true}}, false, false, 0},
	} {
		d, was, ok := resumed(c.runs, k, ended)
		if was != c.was || ok != c.ok || ok && d != c.d {
			t.Errorf("%s: got %v, %t, %t, want %v, %t, %t", c.name, d, was, ok, c.d, c.was, c.ok)
		}
	}
}
