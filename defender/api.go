package defender

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-dev/muster/defender/uchart"
)

// API serves what the store knows, as JSON and for reading only:
//
//	GET /api/v1/alarms?chamber=TOOL:CHAMBER&since=RFC3339&limit=N
//	GET /api/v1/chambers
//	GET /api/v1/chambers/{chamber}/runs?limit=N     verdicts, newest first
//	GET /api/v1/chambers/{chamber}/runs/{context}   verdict and charts
//
// Limits are 1 to 1000, by default 100. A wrong request is answered with 400 and
// all that is wrong with it.
func API(store Store) http.Handler {
	mux := http.NewServeMux()
	a := api{store}
	mux.HandleFunc("GET /api/v1/alarms", a.alarms)
	mux.HandleFunc("GET /api/v1/chambers", a.chambers)
	mux.HandleFunc("GET /api/v1/chambers/{chamber}/runs", a.runs)
	mux.HandleFunc("GET /api/v1/chambers/{chamber}/runs/{context}", a.run)
	return mux
}

type api struct{ store Store }

// RunView is a run as [API] shows it.
type RunView struct {
	Context ContextRef     `json:"context"`
	Verdict uchart.Verdict `json:"verdict"`
	Charts  []ChartView    `json:"charts,omitempty"`
}

// ChartView is the statistics of one sensor in one step; those that aren't valid
// are left out.
type ChartView struct {
	SVID   string             `json:"svid"`
	Step   int32              `json:"step"`
	Values map[string]float64 `json:"values"`
}

const maxLimit = 1000

func limitOf(r *http.Request) (int, error) {
	s := r.URL.Query().Get("limit")
	if s == "" {
		return 100, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxLimit {
		return 0, fmt.Errorf("limit is %q: give 1 to %d", s, maxLimit)
	}
	return n, nil
}

func (a api) alarms(rw http.ResponseWriter, r *http.Request) {
	limit, err := limitOf(r)
	q := AlarmQuery{Limit: limit}
	errs := []error{err}
	if s := r.URL.Query().Get("chamber"); s != "" {
		q.Chamber, err = ParseChamber(s)
		errs = append(errs, err)
	}
	if s := r.URL.Query().Get("since"); s != "" {
		q.Since, err = time.Parse(time.RFC3339, s)
		if err != nil {
			err = fmt.Errorf("since is %q: give a time such as 2026-03-01T12:00:00Z", s)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		refuse(rw, http.StatusBadRequest, err)
		return
	}
	alarms, err := a.store.Alarms(r.Context(), q)
	if alarms == nil {
		alarms = []Alarm{}
	}
	answer(rw, alarms, err)
}

func (a api) chambers(rw http.ResponseWriter, r *http.Request) {
	chambers, err := a.store.Chambers(r.Context())
	if chambers == nil {
		chambers = []ChamberInfo{}
	}
	answer(rw, chambers, err)
}

func (a api) runs(rw http.ResponseWriter, r *http.Request) {
	chamber, err := ParseChamber(r.PathValue("chamber"))
	limit, err2 := limitOf(r)
	if err := errors.Join(err, err2); err != nil {
		refuse(rw, http.StatusBadRequest, err)
		return
	}
	rows, err := a.store.UCharts(r.Context(), chamber, limit)
	views := make([]RunView, 0, len(rows))
	for _, u := range rows {
		views = append(views, RunView{Context: u.Context, Verdict: u.Verdict})
	}
	answer(rw, views, err)
}

func (a api) run(rw http.ResponseWriter, r *http.Request) {
	chamber, err := ParseChamber(r.PathValue("chamber"))
	id := r.PathValue("context")
	if err := errors.Join(err, checkContext(id)); err != nil {
		refuse(rw, http.StatusBadRequest, err)
		return
	}
	u, err := a.store.UChart(r.Context(), chamber, id)
	if err != nil {
		answer(rw, nil, err)
		return
	}
	answer(rw, RunView{Context: u.Context, Verdict: u.Verdict, Charts: chartsOf(u.Chart)}, nil)
}

func chartsOf(c *uchart.Chart) []ChartView {
	var views []ChartView
	for svid, name := range c.SVIDs {
		for step, number := range c.Steps {
			v := ChartView{SVID: name, Step: number, Values: map[string]float64{}}
			for s := range uchart.Statistic(uchart.NumStatistics) {
				if x, ok := c.Value(svid, step, s); ok {
					v.Values[s.String()] = x
				}
			}
			views = append(views, v)
		}
	}
	return views
}

func answer(rw http.ResponseWriter, v any, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		refuse(rw, http.StatusNotFound, err)
	case err != nil:
		refuse(rw, http.StatusServiceUnavailable, err)
	default:
		writeJSON(rw, http.StatusOK, v)
	}
}

func refuse(rw http.ResponseWriter, code int, err error) {
	writeJSON(rw, code, map[string]string{"error": err.Error()})
}
