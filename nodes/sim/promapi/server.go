package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/muster-dev/muster/nodes/sim"
)

// Options are a Prometheus server's settings; zero values stand for the defaults of Prometheus.
type Options struct {
	Interval  time.Duration // between scrapes; 0: 15 s
	Retention time.Duration // how much is kept; 0: 75 min
	Lookback  time.Duration // for how long a sample stands for its series; 0: 5 min

	// Instance is what the instance label of a machine's series says; nil: its internal IP with port 9100.
	Instance func(sim.ExportedNode) string
}

// Server is a Prometheus that scrapes a simulated region. It is an http.Handler; its methods may be called by several goroutines.
type Server struct {
	options Options
	history *history
	engine  *promql.Engine
	parser  parser.Parser
	mux     *http.ServeMux
	scraper *scraper       // guarded by history.mu
	region  *sim.Simulator // nil before Watch
	fault   atomic.Pointer[Fault]
	queries atomic.Int64
}

// Fault is a way to answer wrongly. The zero Fault is none.
type Fault struct {
	Hang     bool     // never answer
	Drop     bool     // close the connection without an answer
	Status   int      // answer everything with this status and Body
	Body     string   // what to answer, instead of JSON if Status is 0 or 200
	NaN      bool     // every number is not one
	Half     bool     // the series of every other machine are left out
	Warnings []string // add these to every answer
	Only     string   // only for queries that contain this; "": for all
}

// New returns a Server that has scraped nothing yet.
func New(o Options) *Server {
	if o.Interval == 0 {
		o.Interval = 15 * time.Second
	}
	if o.Retention == 0 {
		o.Retention = 75 * time.Minute
	}
	if o.Lookback == 0 {
		o.Lookback = 5 * time.Minute
	}
	h := newHistory(o.Retention.Milliseconds())
	s := &Server{
		options: o, history: h, scraper: newScraper(h, o.Instance), parser: parser.NewParser(parser.Options{}), mux: http.NewServeMux(),
	}
	s.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: o.Lookback, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return o.Interval.Milliseconds() }, Parser: s.parser,
	})
	s.mux.HandleFunc("/api/v1/query", s.instant)
	s.mux.HandleFunc("/api/v1/query_range", s.ranged)
	s.mux.HandleFunc("/api/v1/series", s.listSeries)
	s.mux.HandleFunc("/api/v1/status/buildinfo", s.buildinfo)
	s.mux.HandleFunc("/-/ready", say("Prometheus Server is Ready.\n"))
	s.mux.HandleFunc("/-/healthy", say("Prometheus Server is Healthy.\n"))
	return s
}

func say(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
}

// Watch scrapes a region, now and then at every interval of its time, until stop is called. During an outage of the simulator's signals
// the server is not to be reached; during a partial one it has only half the machines.
func (s *Server) Watch(w *sim.Simulator) (stop func()) {
	s.region = w
	return w.Scrape(s.options.Interval, s.Ingest)
}

// Ingest is one scrape of exporters that need not belong to a region. Scrapes come in the order of their times.
func (s *Server) Ingest(e sim.Exporters) { s.locked(func() { s.scraper.ingest(e) }) }

// SetFault makes the server answer wrongly until it is given another Fault.
func (s *Server) SetFault(f Fault) { s.fault.Store(&f) }

// Queries returns how many queries have been asked.
func (s *Server) Queries() int64 { return s.queries.Load() }

// StateMetrics is the address of kube-state-metrics, for FailTarget and MissScrapes; a machine's node-exporter is at its internal IP
// with port 9100.
const StateMetrics = stateMetrics

// FailTarget makes a target refuse its scrapes, or answer them again: its up is 0 and its series end at once.
func (s *Server) FailTarget(address string, failing bool) {
	s.locked(func() { s.scraper.failing[address] = failing })
}

// MissScrapes makes the server not scrape a target, or scrape it again: nothing says that anything is wrong until its series have
// become too old. The address "" is all targets, which is a server that stands still.
func (s *Server) MissScrapes(address string, missed bool) {
	s.locked(func() { s.scraper.miss(address, missed) })
}

// ResetCounters makes a machine's counters begin again with the next scrape, as after a reboot.
func (s *Server) ResetCounters(address string) { s.locked(func() { s.scraper.resets[address] = true }) }

func (s *Server) locked(f func()) {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	f()
}

func (s *Server) time() time.Time {
	if s.region != nil {
		return s.region.Clock().Now()
	}
	s.history.mu.RLock()
	defer s.history.mu.RUnlock()
	return s.scraper.now
}

// ServeHTTP answers as Prometheus does, or as the fault of the moment says.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	var f Fault
	if p := s.fault.Load(); p != nil {
		f = *p
	}
	if s.region != nil {
		down, partial := s.region.SignalsOutage()
		f.Drop, f.Half = f.Drop || down, f.Half || partial
	}
	if f.Only != "" && !strings.Contains(r.Form.Get("query"), f.Only) {
		f = Fault{}
	}
	switch {
	case f.Hang:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Status != 0 || f.Body != "":
		if f.Status != 0 {
			w.WriteHeader(f.Status)
		}
		_, _ = w.Write([]byte(f.Body))
	default:
		s.locked(func() { s.history.half = f.Half })
		s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), faultKey{}, f)))
	}
}

type faultKey struct{}

func (s *Server) instant(w http.ResponseWriter, r *http.Request) {
	s.queries.Add(1)
	at, err := parseTime(r.Form.Get("time"), s.time())
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "bad_data", fmt.Errorf("invalid parameter \"time\": %w", err))
		return
	}
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "bad_data", err)
		return
	}
	defer cancel()
	q, err := s.engine.NewInstantQuery(ctx, s.history, nil, r.Form.Get("query"), at)
	s.answer(ctx, w, r, q, err)
}

func (s *Server) ranged(w http.ResponseWriter, r *http.Request) {
	s.queries.Add(1)
	start, err1 := parseTime(r.Form.Get("start"), time.Time{})
	end, err2 := parseTime(r.Form.Get("end"), time.Time{})
	step, err3 := parseDuration(r.Form.Get("step"))
	ctx, cancel, err4 := withTimeout(r)
	if err := errors.Join(err1, err2, err3, err4); err != nil || step <= 0 || end.Before(start) || end.Sub(start)/max(step, 1) > 11000 {
		s.refuse(w, http.StatusBadRequest, "bad_data", fmt.Errorf("invalid start, end, step or timeout: %w", errors.Join(err, errors.New("at most 11,000 points"))))
		return
	}
	defer cancel()
	q, err := s.engine.NewRangeQuery(ctx, s.history, nil, r.Form.Get("query"), start, end, step)
	s.answer(ctx, w, r, q, err)
}

func (s *Server) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, q promql.Query, err error) {
	if err != nil {
		s.refuse(w, http.StatusBadRequest, "bad_data", fmt.Errorf("invalid parameter \"query\": %w", err))
		return
	}
	defer q.Close()
	res := q.Exec(ctx)
	if err := res.Err; err != nil {
		var canceled promql.ErrQueryCanceled
		var late promql.ErrQueryTimeout
		switch {
		case errors.As(err, &canceled):
			s.refuse(w, 499, "canceled", err)
		case errors.As(err, &late):
			s.refuse(w, http.StatusServiceUnavailable, "timeout", err)
		default:
			s.refuse(w, http.StatusUnprocessableEntity, "execution", err)
		}
		return
	}
	f, _ := ctx.Value(faultKey{}).(Fault)
	value := res.Value
	if f.NaN {
		value = notNumbers(value)
	}
	warnings, infos := res.Warnings.AsStrings(r.Form.Get("query"), 10, 10)
	s.write(w, http.StatusOK, reply{Status: "success", Data: data{value.Type(), value}, Warnings: append(warnings, f.Warnings...), Infos: infos})
}

func notNumbers(v parser.Value) parser.Value {
	switch v := v.(type) {
	case promql.Vector:
		for i := range v {
			v[i].F = math.NaN()
		}
	case promql.Matrix:
		for _, m := range v {
			for i := range m.Floats {
				m.Floats[i].F = math.NaN()
			}
		}
	case promql.Scalar:
		v.V = math.NaN()
		return v
	}
	return v
}

func (s *Server) listSeries(w http.ResponseWriter, r *http.Request) {
	out := []labels.Labels{}
	for _, sel := range r.Form["match[]"] {
		m, err := s.parser.ParseMetricSelector(sel)
		if err != nil {
			s.refuse(w, http.StatusBadRequest, "bad_data", fmt.Errorf("invalid parameter \"match[]\": %w", err))
			return
		}
		q, _ := s.history.Querier(math.MinInt64, math.MaxInt64)
		for set := q.Select(r.Context(), true, nil, m...); set.Next(); {
			out = append(out, set.At().Labels())
		}
	}
	s.write(w, http.StatusOK, reply{Status: "success", Data: out})
}

func (s *Server) buildinfo(w http.ResponseWriter, _ *http.Request) {
	s.write(w, http.StatusOK, reply{Status: "success", Data: map[string]string{"version": "3.13.5", "revision": "simulated", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}})
}

type reply struct {
	Status    string   `json:"status"`
	Data      any      `json:"data,omitempty"`
	ErrorType string   `json:"errorType,omitempty"`
	Error     string   `json:"error,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`
	Infos     []string `json:"infos,omitempty"`
}

type data struct {
	ResultType parser.ValueType `json:"resultType"`
	Result     parser.Value     `json:"result"`
}

func (s *Server) refuse(w http.ResponseWriter, status int, kind string, err error) {
	s.write(w, status, reply{Status: "error", ErrorType: kind, Error: err.Error()})
}

func (s *Server) write(w http.ResponseWriter, status int, r reply) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(r)
}

func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	text := r.Form.Get("timeout")
	if text == "" {
		return r.Context(), func() {}, nil
	}
	d, err := parseDuration(text)
	if err != nil {
		return nil, nil, fmt.Errorf("invalid parameter \"timeout\": %w", err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	return ctx, cancel, nil
}

func parseTime(s string, byDefault time.Time) (time.Time, error) {
	if s == "" {
		return byDefault, nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return time.UnixMilli(int64(math.Round(f * 1000))), nil
	}
	return time.Parse(time.RFC3339Nano, s)
}

func parseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(s)
	return time.Duration(d), err
}
