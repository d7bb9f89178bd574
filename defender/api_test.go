package defender_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/trace"
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
}
