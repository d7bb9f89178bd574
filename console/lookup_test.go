package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestLookups(t *testing.T) {
	now := time.Now()
	_, o := askedAt(now)
	c, s := serve(t, o)
	_, bare := serve(t, Options{})
	c.SlotMoved(SlotMove{Slot: 3, From: "w-1", To: "w-2", At: now.Add(-time.Hour)})
	c.SlotMoved(SlotMove{Slot: 3, From: "w-2", To: "w-3", At: now})
	c.SlotMoved(SlotMove{Slot: 4, From: "w-1", To: "w-3", At: now})
	for path, want := range map[string]int{"slot=3": 2, "worker=w-1": 2, "worker=w-3&slot=3": 1, "worker=w-9": 0, "limit=1": 1,
		"from=" + url.QueryEscape(now.Add(-time.Minute).Format(time.RFC3339)): 2, "to=" + url.QueryEscape(now.Add(-time.Minute).Format(time.RFC3339)): 1} {
		var got []SlotMove
		if status := getJSON(t, s.URL+"/api/moves?"+path, &got); status != http.StatusOK || len(got) != want {
			t.Errorf("moves?%s: status %d, %d moves, want %d", path, status, len(got), want)
		}
	}
	for path, c := range map[string]struct {
		status int
		says   string
	}{
		"moves?slot=x&from=yesterday": {http.StatusBadRequest, `from is "yesterday"`},
		"moves?limit=0":               {http.StatusBadRequest, "from 1 to 2000"},
		"load?to=x":                   {http.StatusBadRequest, "give a time as"},
		"slots/x":                     {http.StatusBadRequest, "give its number"},
		"preview?add=-1":              {http.StatusBadRequest, "from 0 to 1000"},
		"keys/nokey":                  {http.StatusNotFound, "write tool:chamber"},
	} {
		var fault map[string]string
		if status := getJSON(t, s.URL+"/api/"+path, &fault); status != c.status || !strings.Contains(fault["error"], c.says) {
			t.Errorf("%s: status %d, %q", path, status, fault["error"])
		}
	}
	for _, path := range []string{"keys/a:b", "slots/1", "alarms", "runs/a/b/c", "preview", "load"} {
		var fault map[string]string
		if status := getJSON(t, bare.URL+"/api/"+path, &fault); status != http.StatusNotFound || fault["error"] == "" {
			t.Errorf("a console without %s answers %d, %q", path, status, fault["error"])
		}
	}
}
