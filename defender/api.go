package defender

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/defender/uchart"
)

// API serves what the store knows, as JSON and for reading only:
//
//	GET /api/v1/alarms?chamber=TOOL:CHAMBER&since=RFC3339&limit=N
//	GET /api/v1/chambers
//	GET /api/v1/chambers/{chamber}/runs?limit=N     verdicts, newest first
//	GET /api/v1/chambers/{chamber}/runs/{context}   verdict and charts
//	GET /api/v1/chambers/{chamber}/limits?recipe=R  frozen limits in force
//	GET /api/v1/chambers/{chamber}/alarm-charts?recipe=R&limit=N
//	                                                u, t and g charts of its alarms
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
	mux.HandleFunc("GET /api/v1/chambers/{chamber}/limits", a.limits)
	mux.HandleFunc("GET /api/v1/chambers/{chamber}/alarm-charts", a.alarmCharts)
	return mux
}

type api struct{ store Store }

// LimitView is the frozen limits of one chart.
type LimitView struct {
	SVID      string           `json:"svid"`
	Step      int32            `json:"step"`
	Statistic uchart.Statistic `json:"statistic"`
	spc.Estimate
}

// LimitsView is the frozen limits of a chamber and recipe.
type LimitsView struct {
	Context string          `json:"context"` // the first judged by them
	Limits  uchart.LimitsID `json:"limits"`
	Charts  []LimitView     `json:"charts"`
	// Courses are those of statistics whose runs depend on each other: there the sigma of a
	// chart is that of a forecast. Tail widens the limits of all charts.
	Courses []uchart.Course `json:"courses,omitempty"`
	Tail    uchart.Tail     `json:"tail,omitzero"`
}

// latest returns the newest runs of a chamber and recipe, oldest first.
func (a api) latest(r *http.Request, limit int) (Chamber, []UChart, error) {
	chamber, err := ParseChamber(r.PathValue("chamber"))
	recipe := r.URL.Query().Get("recipe")
	if err := errors.Join(err, checkText("recipe", recipe)); err != nil {
		return chamber, nil, wrongRequest{err}
	}
	rows, err := a.store.History(r.Context(), HistoryQuery{Chamber: chamber, Recipe: recipe, Before: Position{End: latest}, Limit: limit})
	return chamber, rows, err
}

type wrongRequest struct{ error }

func (a api) limits(rw http.ResponseWriter, r *http.Request) {
	chamber, rows, err := a.latest(r, 1)
	if err != nil {
		answer(rw, nil, err)
		return
	}
	none := fmt.Errorf("%s has no frozen limits for this recipe now: %w", chamber, ErrNotFound)
	if len(rows) == 0 {
		answer(rw, nil, none)
		return
	}
	u := rows[0]
	if at := u.Verdict.Limits.At; at != "" {
		if u, err = a.store.UChart(r.Context(), chamber, at); err != nil {
			answer(rw, nil, err)
			return
		}
	}
	if u.Verdict.Frozen == nil {
		answer(rw, nil, none)
		return
	}
	answer(rw, limitsView(u), nil)
}

func limitsView(u UChart) LimitsView {
	b := u.Verdict.Frozen
	v := LimitsView{Context: u.Context.ID, Limits: b.Limits, Charts: []LimitView{}, Courses: b.Courses, Tail: b.Tail}
	if !b.Valid() {
		return v
	}
	for svid, name := range b.SVIDs {
		for step, number := range b.Steps {
			for at, s := range b.Statistics {
				if e, ok := b.Estimate(svid, step, at); ok {
					v.Charts = append(v.Charts, LimitView{SVID: name, Step: number, Statistic: s, Estimate: e})
				}
			}
		}
	}
	return v
}

func (a api) alarmCharts(rw http.ResponseWriter, r *http.Request) {
	limit, err := limitOf(r)
	if err != nil {
		answer(rw, nil, wrongRequest{err})
		return
	}
	_, rows, err := a.latest(r, limit)
	answer(rw, ChartAlarms(rows), err)
}

// withoutLimits leaves out what /limits shows better.
func withoutLimits(v uchart.Verdict) uchart.Verdict {
	v.Frozen = nil
	return v
}

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
		views = append(views, RunView{Context: u.Context, Verdict: withoutLimits(u.Verdict)})
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
	answer(rw, RunView{Context: u.Context, Verdict: withoutLimits(u.Verdict), Charts: chartsOf(u.Chart)}, nil)
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
	wrong := wrongRequest{}
	switch {
	case errors.As(err, &wrong):
		refuse(rw, http.StatusBadRequest, err)
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrNoAlarm):
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
