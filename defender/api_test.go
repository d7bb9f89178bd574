package defender_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/partition"
)

func TestTheAPIShowsRunsAndAlarms(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	d := s.defender(nil)
	g := trace.Generator{Seed: 1}
	for i, id := range []string{"a", "b", "c"} {
		if err := d.Handle(t.Context(), s.context(id, g.Wafer(i), now.Add(time.Duration(i)*time.Minute), first)); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(defender.API(s.store))
	t.Cleanup(srv.Close)
	get := func(path string, code int, v any) {
		t.Helper()
		res, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != code {
			t.Errorf("%s is answered %s, want %d", path, res.Status, code)
		}
		if err := json.NewDecoder(res.Body).Decode(v); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	var runs []defender.RunView
	get("/api/v1/chambers/"+etcher.String()+"/runs?limit=2", 200, &runs)
	if len(runs) != 2 || runs[0].Context.ID != "c" || len(runs[0].Charts) != 0 {
		t.Errorf("runs are %+v, want c and b", runs)
	}
	var run defender.RunView
	get("/api/v1/chambers/"+etcher.String()+"/runs/b", 200, &run)
	if len(run.Charts) == 0 || run.Charts[0].Values["count"] == 0 {
		t.Errorf("the run is %+v, want its charts", run)
	}
	var alarms []defender.Alarm
	get("/api/v1/alarms", 200, &alarms)
	var chambers []defender.ChamberInfo
	get("/api/v1/chambers", 200, &chambers)
	var refused map[string]string
	get("/api/v1/alarms?limit=0&chamber=x&since=yesterday", 400, &refused)
	for _, want := range []string{"limit", "colon", "since"} {
		if !strings.Contains(refused["error"], want) {
			t.Errorf("the answer %q doesn't tell of %s", refused["error"], want)
		}
	}
	get("/api/v1/chambers/"+etcher.String()+"/runs/none", 404, &refused)
	get("/api/v1/chambers/nobody/runs", 400, &refused)
	get("/api/v1/chambers/"+etcher.String()+"/limits?recipe=etch", 404, &refused)
	get("/api/v1/chambers/nobody/limits", 400, &refused)
	get("/api/v1/chambers/nobody/alarm-charts", 400, &refused)
	get("/api/v1/chambers/"+etcher.String()+"/alarm-charts?limit=x", 400, &refused)

	// Once limits are frozen they are shown by themselves, whichever run keeps them.
	d = s.defender(strategies(t, "schema: 1\nversion: 1\nstrategies: [{name: a, univariate: {phase1: {runs: 12}}}]"))
	for i := 3; i < 24; i++ {
		if err := d.Handle(t.Context(), s.context(fmt.Sprintf("r%02d", i), g.Wafer(i), now.Add(time.Duration(i)*time.Minute), first)); err != nil {
			t.Fatal(err)
		}
	}
	var limits defender.LimitsView
	get("/api/v1/chambers/"+etcher.String()+"/limits?recipe=etch", 200, &limits)
	if limits.Context != "r12" || limits.Limits.N != 12 || limits.Limits.First != "a" || len(limits.Charts) < 50 || limits.Charts[0].N < 9 {
		t.Errorf("limits are of %s, %+v, with %d charts", limits.Context, limits.Limits, len(limits.Charts))
	}
	get("/api/v1/chambers/"+etcher.String()+"/runs/r12", 200, &run)
	if run.Verdict.Frozen != nil {
		t.Error("a run shows all limits, too")
	}
	var charts defender.AlarmCharts
	get("/api/v1/chambers/"+etcher.String()+"/alarm-charts?recipe=etch", 200, &charts)
	if charts.Between != nil {
		t.Errorf("without alarms there is a t-chart: %+v", charts.Between)
	}
}

func TestTheCacheStaysWithinItsBytes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	reg := prometheus.NewRegistry()
	metrics := defender.NewMetrics(nil)
	const most = 200_000
	d := s.defender(func(c *defender.Config) { c.CacheBytes, c.Metrics = most, metrics })
	reg.MustRegister(metrics.Collectors()...)
	w := new(trace.Generator).Wafer(0)
	for i := range 10 {
		for tool := range 6 {
			s.context(fmt.Sprint("run", i), w, now.Add(time.Duration(i)*time.Minute), first) // for its T-chart
			c := defender.Chamber{Tool: fmt.Sprint("tool", tool), Name: "a"}
			ref := defender.ContextRef{Chamber: c, ID: fmt.Sprint("run", i), Recipe: "etch", Start: now, End: now.Add(time.Duration(i) * time.Minute)}
			blob, err := s.store.TChart(t.Context(), defender.TChartKey{Chamber: etcher, Context: ref.ID})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.store.PutTChart(t.Context(), ref.TChart(), blob, now.AddDate(0, 0, 7)); err != nil {
				t.Fatal(err)
			}
			m := s.message(ref, first)
			m.Key = c.String()
			if err := d.Handle(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if stats := d.CacheStats(); stats.Bytes > most || stats.Bytes < 0 {
				t.Fatalf("the cache is %+v", stats)
			}
		}
	}
	stats := d.CacheStats()
	if stats.Chambers == 0 || stats.Chambers == 6 || stats.Evictions == 0 || stats.Hits+stats.Misses != 60 {
		t.Errorf("the cache is %+v, want some of six chambers in it", stats)
	}
	// An evicted chamber is judged by all that it has in the store.
	u, err := s.store.UChart(t.Context(), defender.Chamber{Tool: "tool0", Name: "a"}, "run9")
	if err != nil || u.Verdict.Limits.N != 9 {
		t.Errorf("the last verdict is %+v, %v, want it to rest on 9 contexts", u.Verdict.Limits, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range families {
		seen[f.GetName()] = true
	}
	for _, name := range []string{"defender_cache_bytes", "defender_cache_limit_bytes", "defender_cache_chambers", "defender_cache_evictions_total"} {
		if !seen[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
	d.Released(partition.Slots{Of: 1, Slots: []int{0}})
	if stats := d.CacheStats(); stats.Bytes != 0 || stats.Chambers != 0 {
		t.Errorf("after all slots went the cache is %+v", stats)
	}
}
