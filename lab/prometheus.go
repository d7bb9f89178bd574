package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// target is something that Prometheus reads.
type target struct{ job, addr string }

func parseTarget(s string) (target, error) {
	job, addr, ok := strings.Cut(s, "=")
	if _, _, err := net.SplitHostPort(addr); !ok || job == "" || err != nil {
		return target{}, errors.New("write JOB=HOST:PORT")
	}
	return target{job, addr}, nil
}

// promServer is Prometheus' storage, scraper and query engine behind the two queries of its HTTP API.
type promServer struct {
	url    string
	db     *tsdb.DB
	engine *promql.Engine
	scrape *scrape.Manager
	server *http.Server
}

// startPrometheus reads targets every interval and serves what it read, beside what is in dir from before.
func startPrometheus(dir, addr string, interval time.Duration, targets []target) (*promServer, error) {
	quiet, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	options := tsdb.DefaultOptions()
	options.RetentionDuration = int64(24 * time.Hour / time.Millisecond)
	db, err := tsdb.Open(dir, quiet, registry, options, nil)
	if err != nil {
		return nil, err
	}
	p := &promServer{db: db, engine: promql.NewEngine(promql.EngineOpts{
		Logger: quiet, Reg: registry, MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
		NoStepSubqueryIntervalFn: func(int64) int64 { return interval.Milliseconds() }, // the evaluation interval of a real one
	})}
	if p.scrape, err = scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(100 * time.Millisecond)}, quiet, nil, nil, db, registry); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := p.watch(quiet, interval, targets); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/-/ready", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ready") })
	mux.HandleFunc("/api/v1/query", p.query)
	mux.HandleFunc("/api/v1/query_range", p.queryRange)
	p.url, p.server = "http://"+l.Addr().String(), &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.server.Serve(l) }() // it ends when it is closed
	return p, nil
}

func (p *promServer) watch(quiet *slog.Logger, interval time.Duration, targets []target) error {
	var y strings.Builder
	fmt.Fprintf(&y, "global:\n  scrape_interval: %s\n  scrape_timeout: %s\nscrape_configs:\n", interval, interval)
	groups := map[string][]*targetgroup.Group{}
	for _, t := range targets {
		if groups[t.job] == nil {
			fmt.Fprintf(&y, "- job_name: %q\n  honor_labels: true\n", t.job)
		}
		groups[t.job] = append(groups[t.job], &targetgroup.Group{Source: t.addr, Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(t.addr)}}})
	}
	c, err := config.Load(y.String(), quiet)
	if err != nil {
		return err
	}
	if err := p.scrape.ApplyConfig(c); err != nil {
		return err
	}
	sets := make(chan map[string][]*targetgroup.Group, 1)
	sets <- groups
	go func() { _ = p.scrape.Run(sets) }() // it ends when it is stopped
	return nil
}

func (p *promServer) stop() {
	_ = p.server.Close()
	p.scrape.Stop()
	_ = p.db.Close()
}

func (p *promServer) query(w http.ResponseWriter, r *http.Request) {
	at, err := timeOf(r.FormValue("time"), time.Now())
	if err != nil {
		reply(w, http.StatusBadRequest, "bad_data", nil, err)
		return
	}
	q, err := p.engine.NewInstantQuery(r.Context(), p.db, nil, r.FormValue("query"), at)
	p.answer(r.Context(), w, q, err)
}

func (p *promServer) queryRange(w http.ResponseWriter, r *http.Request) {
	from, err1 := timeOf(r.FormValue("start"), time.Time{})
	to, err2 := timeOf(r.FormValue("end"), time.Time{})
	step, err3 := stepOf(r.FormValue("step"))
	if err := errors.Join(err1, err2, err3); err != nil {
		reply(w, http.StatusBadRequest, "bad_data", nil, err)
		return
	}
	q, err := p.engine.NewRangeQuery(r.Context(), p.db, nil, r.FormValue("query"), from, to, step)
	p.answer(r.Context(), w, q, err)
}

func (p *promServer) answer(ctx context.Context, w http.ResponseWriter, q promql.Query, err error) {
	if err != nil {
		reply(w, http.StatusBadRequest, "bad_data", nil, err)
		return
	}
	defer q.Close()
	if res := q.Exec(ctx); res.Err != nil {
		reply(w, http.StatusUnprocessableEntity, "execution", nil, res.Err)
	} else {
		reply(w, http.StatusOK, "", map[string]any{"resultType": res.Value.Type(), "result": res.Value}, nil)
	}
}

// reply answers in the form of Prometheus' API.
func reply(w http.ResponseWriter, code int, kind string, data any, err error) {
	out := map[string]any{"status": "success", "data": data}
	if err != nil {
		out = map[string]any{"status": "error", "errorType": kind, "error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(out) // a client that has gone needs no answer
}

func timeOf(s string, none time.Time) (time.Time, error) {
	if s == "" {
		return none, nil
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return time.UnixMilli(int64(f * 1000)), nil
	}
	return time.Parse(time.RFC3339Nano, s)
}

func stepOf(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return time.Duration(f * float64(time.Second)), nil
	}
	d, err := model.ParseDuration(s)
	return time.Duration(d), err
}
