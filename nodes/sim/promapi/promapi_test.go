package promapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/muster-dev/muster/nodes/sim"
)

var start = time.Unix(1730001600, 0).UTC()

// serve returns a Server behind HTTP and the real client of it.
func serve(t testing.TB, o Options) (*Server, v1.API) {
	t.Helper()
	s := New(o)
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	c, err := api.NewClient(api.Config{Address: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	return s, v1.NewAPI(c)
}

func ask(t testing.TB, c v1.API, query string, at time.Time) model.Vector {
	t.Helper()
	v, _, _, err := c.Query(context.Background(), query, at)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v.(model.Vector)
}

// number returns the value of a query that gives one sample, NaN if it gives none.
func number(t testing.TB, c v1.API, query string, at time.Time) float64 {
	t.Helper()
	v := ask(t, c, query, at)
	switch len(v) {
	case 0:
		return math.NaN()
	case 1:
		return float64(v[0].Value)
	}
	t.Fatalf("%s gives %d samples", query, len(v))
	return 0
}

func TestASaturatedMachineReadsSaturatedAndAnIdleOneIdle(t *testing.T) {
	const right, seed = `1 - avg(rate(node_cpu_seconds_total{mode="idle"}[5m]))`, `avg(rate(node_cpu_seconds_total{mode!="idle"}[5m]))`
	for _, c := range []struct{ load, least, most, seedLeast, seedMost float64 }{{1, 0.95, 1.0001, 0.14, 0.145}, {0.02, 0, 0.05, 0, 0.01}, {0.7, 0.69, 0.71, 0.09, 0.11}} {
		s, client := serve(t, Options{})
		for i := range 40 {
			s.Ingest(sim.Exporters{At: start.Add(time.Duration(i) * 15 * time.Second), Nodes: []sim.ExportedNode{
				{Name: "a", InternalIP: "10.0.0.1", Up: true, Ready: true, CPUs: 4, Load: c.load}, {Name: "b", InternalIP: "10.0.0.2", Up: true, Ready: true, CPUs: 2, Load: c.load}}})
			if i == 30 {
				s.ResetCounters("10.0.0.2:9100")
			}
		}
		at := start.Add(39 * 15 * time.Second)
		if v := number(t, client, `count(node_cpu_seconds_total)`, at); v != 6*8 {
			t.Errorf("%v series of 6 CPUs, want 8 modes each", v)
		}
		if v := number(t, client, right, at); v < c.least-1e-9 || v > c.most {
			t.Errorf("load %v reads %v", c.load, v)
		}
		if v := number(t, client, seed, at); v < c.seedLeast || v > c.seedMost {
			t.Errorf("load %v reads %v by the seed's expression", c.load, v)
		}
		if v := number(t, client, `sum(resets(node_cpu_seconds_total{mode="idle"}[10m]))`, at); c.load < 1 && v != 2 {
			t.Errorf("%v resets, want one of each CPU of b", v)
		}
	}
}

func TestWhatAWorldDoesShowsInItsSeries(t *testing.T) {
	w := sim.New(sim.Options{Start: start, Workers: []string{"a", "b"}})
	s, client := serve(t, Options{})
	stop := s.Watch(w)
	defer stop()
	w.AddPods(3, sim.PodSpec{Name: "shop/web", MilliCPU: 1000})
	w.Advance(6 * time.Minute)
	now := func() time.Time { return w.Clock().Now() }
	want := func(query string, v float64) {
		t.Helper()
		if got := number(t, client, query, now()); math.Abs(got-v) > 1e-6 && !(math.IsNaN(got) && math.IsNaN(v)) {
			t.Errorf("%s = %v, want %v", query, got, v)
		}
	}
	want(`sum(up)`, 4) // three machines and kube-state-metrics
	want(`count(kube_node_status_condition{condition="Ready",status="true"} == 1)`, 3)
	want(`count(kube_node_info{internal_ip=~"10.*"})`, 3)
	want(`count(kube_node_role{role="control-plane"})`, 1)
	want(`sum(kube_pod_status_phase{phase="Running",namespace="shop"})`, 3)
	want(`count(kube_pod_status_phase{namespace="shop"})`, 15)
	want(`sum(kube_pod_status_unschedulable)`, math.NaN())
	want(`count(kube_pod_info{node="i-002",namespace="shop"})`, 2)
	want(`1 - avg(rate(node_cpu_seconds_total{mode="idle",instance="10.0.0.3:9100"}[1m]))`, 1)

	w.AddPods(5, sim.PodSpec{Name: "shop/big", MilliCPU: 1500})
	w.Advance(15 * time.Second)
	want(`sum(kube_pod_status_unschedulable)`, 5)
	want(`sum(kube_pod_status_phase{phase="Pending"})`, 5)
	w.RemovePods("shop/big")
	w.Advance(15 * time.Second)
	want(`sum(kube_pod_status_unschedulable)`, math.NaN()) // at once, by stale markers
	want(`sum(kube_pod_status_phase{phase="Pending"})`, 0)

	w.TakeAway("i-002")
	w.Advance(30 * time.Second)
	want(`up{instance="10.0.0.3:9100"}`, 0)
	want(`count(node_cpu_seconds_total{instance="10.0.0.3:9100"})`, math.NaN())
	want(`count(kube_node_status_condition{condition="Ready",status="unknown"} == 1)`, 1)
	w.DeleteNode("i-002")
	w.Advance(15 * time.Second)
	want(`count(kube_node_info)`, 2)
	want(`up{instance="10.0.0.3:9100"}`, math.NaN())

	w.SetLoad(0.5)
	w.Advance(5 * time.Minute)
	want(`1 - avg(rate(node_cpu_seconds_total{mode="idle",instance="10.0.0.4:9100"}[1m]))`, 0.5)
}

func TestFailedAndMissedScrapes(t *testing.T) {
	w := sim.New(sim.Options{Start: start, Workers: []string{"a", "b"}})
	s, client := serve(t, Options{})
	defer s.Watch(w)()
	w.Advance(6 * time.Minute)
	now := func() time.Time { return w.Clock().Now() }
	count := `count(kube_node_info)`

	s.FailTarget(StateMetrics, true)
	w.Advance(15 * time.Second)
	if v := number(t, client, count, now()); !math.IsNaN(v) {
		t.Errorf("a failed scrape leaves %v nodes", v)
	}
	if v := number(t, client, `up{job="kube-state-metrics"}`, now()); v != 0 {
		t.Errorf("up = %v", v)
	}
	s.FailTarget(StateMetrics, false)
	w.Advance(15 * time.Second)
	if v := number(t, client, count, now()); v != 3 {
		t.Errorf("afterwards %v nodes, want 3", v)
	}
	s.MissScrapes("", true)
	w.Advance(4 * time.Minute)
	if v := number(t, client, count, now()); v != 3 {
		t.Errorf("a server that stood still for less than the lookback shows %v nodes, want 3", v)
	}
	if v := number(t, client, `time() - max(timestamp(kube_node_info))`, now()); v < 235 {
		t.Errorf("its newest sample is %v s old, want 240", v)
	}
	w.Advance(2 * time.Minute)
	if v := number(t, client, count, now()); !math.IsNaN(v) {
		t.Errorf("after more than the lookback it shows %v nodes", v)
	}
	s.MissScrapes("", false)
	w.Advance(time.Minute)
	if v := number(t, client, `count_over_time(kube_node_created{node="i-001"}[10m])`, now()); v >= 20 {
		t.Errorf("%v samples in 10 minutes with a gap of 6", v)
	}
}

func TestTheServerAnswersWronglyWhenTold(t *testing.T) {
	w := sim.New(sim.Options{Start: start, Workers: []string{"a", "b", "a"}})
	s, client := serve(t, Options{})
	defer s.Watch(w)()
	w.Advance(time.Minute)
	at := w.Clock().Now()
	query := func(q string) (model.Value, v1.Warnings, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		v, warnings, _, err := client.Query(ctx, q, at)
		return v, warnings, err
	}
	s.SetFault(Fault{Status: 503, Body: "<html>overloaded"})
	if _, _, err := query("up"); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("503 gives %v", err)
	}
	s.SetFault(Fault{Body: "not JSON"})
	if _, _, err := query("up"); err == nil {
		t.Error("garbage is no error")
	}
	s.SetFault(Fault{NaN: true})
	if v, _, err := query("vector(1)"); err != nil || !math.IsNaN(float64(v.(model.Vector)[0].Value)) {
		t.Errorf("NaN gives %v %v", v, err)
	}
	s.SetFault(Fault{Warnings: []string{"a store is gone"}, Only: "sum"})
	if _, warnings, err := query("sum(up)"); err != nil || len(warnings) != 1 {
		t.Errorf("warnings %v %v", warnings, err)
	}
	if _, warnings, err := query("up"); err != nil || len(warnings) != 0 {
		t.Errorf("a fault for other queries gives %v %v", warnings, err)
	}
	s.SetFault(Fault{Half: true})
	if v, _, err := query(`count(up{job="node-exporter"})`); err != nil || v.(model.Vector)[0].Value != 2 {
		t.Errorf("half gives %v %v", v, err)
	}
	s.SetFault(Fault{Drop: true})
	if _, _, err := query("up"); err == nil {
		t.Error("a closed connection is no error")
	}
	s.SetFault(Fault{Hang: true})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, _, _, err := client.Query(ctx, "up", at); err == nil {
		t.Error("a hanging server answers")
	}
	s.SetFault(Fault{})
	w.Outage(sim.SignalsPart, 0, time.Minute)
	if _, _, err := query("up"); err == nil {
		t.Error("an unreachable server answers")
	}
	w.Advance(2 * time.Minute)
	if _, _, err := query("up"); err != nil {
		t.Errorf("after the outage: %v", err)
	}
	for q, kind := range map[string]v1.ErrorType{"sum(": v1.ErrBadData, "up * on (job) up": v1.ErrExec} {
		_, _, err := query(q)
		var e *v1.Error
		if !errors.As(err, &e) || e.Type != kind {
			t.Errorf("%s gives %v, want %s", q, err, kind)
		}
	}
}

func TestRangesAndTheRestOfTheAPI(t *testing.T) {
	w := sim.New(sim.Options{Start: start, Workers: []string{"a"}})
	s, client := serve(t, Options{})
	defer s.Watch(w)()
	w.Advance(5 * time.Minute)
	v, _, _, err := client.QueryRange(context.Background(), `sum(up)`, v1.Range{Start: start, End: start.Add(5 * time.Minute), Step: time.Minute})
	if m, ok := v.(model.Matrix); err != nil || !ok || len(m) != 1 || len(m[0].Values) != 6 {
		t.Errorf("range gives %v %v", v, err)
	}
	if _, err := client.Buildinfo(context.Background()); err != nil {
		t.Error(err)
	}
	list, _, _, err := client.Series(context.Background(), []string{"up"}, start, start)
	if err != nil || len(list) != 3 {
		t.Errorf("series %v %v", list, err)
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/api/v1/query?query=1%2B1", nil))
	var r struct{ Data struct{ ResultType string } }
	if err := json.Unmarshal(rec.Body.Bytes(), &r); err != nil || r.Data.ResultType != "scalar" {
		t.Errorf("a scalar: %s %v", rec.Body, err)
	}
	for _, path := range []string{"/-/ready", "/-/healthy"} {
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		if rec.Code != 200 {
			t.Errorf("%s: %d", path, rec.Code)
		}
	}
}

func TestMemoryStaysBounded(t *testing.T) {
	s := New(Options{})
	e := sim.Exporters{}
	for n := range 20 {
		e.Nodes = append(e.Nodes, sim.ExportedNode{Name: fmt.Sprint("n", n), InternalIP: fmt.Sprint("10.0.0.", n), Up: true, Ready: true, CPUs: 2})
		for p := range 10 {
			e.Pods = append(e.Pods, sim.ExportedPod{Namespace: "shop", Name: fmt.Sprint("p", n, "-", p), Node: fmt.Sprint("n", n)})
		}
	}
	runs := func() (series, runs int) {
		for _, list := range s.history.byName {
			series += len(list)
			for _, x := range list {
				runs += len(x.runs)
			}
		}
		return series, runs
	}
	var afterAnHour, atTheEnd int
	for i := range 8 * 240 { // eight hours, every pod replaced each ten minutes
		e.At = start.Add(time.Duration(i) * 15 * time.Second)
		for k := range e.Nodes {
			e.Nodes[k].Load = float64((i/20+k)%10) / 10
		}
		if i%40 == 0 {
			for k := range e.Pods {
				e.Pods[k].Name = fmt.Sprint("p", k, "-", i)
			}
		}
		s.Ingest(e)
		switch i {
		case 2 * 240:
			_, afterAnHour = runs()
		case 8*240 - 1:
			_, atTheEnd = runs()
		}
	}
	if float64(atTheEnd) > 1.6*float64(afterAnHour) {
		t.Errorf("%d runs after two hours, %d after eight hours", afterAnHour, atTheEnd)
	}
	if n := len(s.history.times); n > 450 {
		t.Errorf("%d scrapes kept", n)
	}
}
