package prom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/muster-dev/muster/nodes"
)

// Signals reads metrics from one Prometheus. It implements nodes.Signals and keeps nothing between two observations.
type Signals struct {
	api    v1.API
	config Config
	policy nodes.Policy
	clock  nodes.Clock
}

var _ nodes.Signals = (*Signals)(nil)

// New returns signals that ask api. c has been validated; its URL and references are not looked at.
func New(api v1.API, c Config, p nodes.Policy) *Signals {
	s := &Signals{api: api, config: c, policy: p, clock: c.Clock}
	if s.clock == nil {
		s.clock = nodes.SystemClock{}
	}
	return s
}

// Observe asks every query for the same moment, a number of requests that depends on nothing. A query that fails, or returns
// something stale, partial or not a number, gives a missing Reading; only when Prometheus can't be asked at all is the error not nil.
func (s *Signals) Observe(ctx context.Context) (nodes.Readings, error) {
	o := s.observe(ctx)
	if o.unreachable != nil {
		return nodes.Readings{}, o.unreachable
	}
	return o.readings, nil
}

// observation is what was asked and answered, and what follows from it.
type observation struct {
	at          time.Time
	scope       scope
	answers     map[name]answer
	unreachable error // no query could be asked
	machines    []machine
	readings    nodes.Readings
}

// answer is what a query returned.
type answer struct {
	text    string // of the query, as it was asked
	samples model.Vector
	err     *queryError
}

// queryError says why a query has no answer that may be used.
type queryError struct {
	why       string
	fix       string
	transport bool // Prometheus was not to be reached, or did not say anything
}

// Error returns why.
func (e *queryError) Error() string { return e.why }

func (s *Signals) observe(ctx context.Context) *observation {
	at := s.clock.Now().Truncate(time.Millisecond)
	p := s.policy
	o := &observation{at: at, answers: map[name]answer{}, scope: scope{pending: p.Pending, windows: map[name]time.Duration{
		queryCPUMin: p.CPUUpFor, queryCPUMax: p.IdleDownFor, queryPendingMin: p.PendingUpFor, queryPendingMax: p.IdleDownFor}}}
	o.readings.At = at
	ctx, cancel := s.bounded(ctx)
	defer cancel()

	s.ask(ctx, o, queryState, queryNodes, queryControl, queryUnsched, queryPhase, queryPendingMin, queryPendingMax)
	if err := o.noneAnswered(); err != nil {
		o.unreachable = err
		return o
	}
	state := s.stateMetrics(o)
	s.readPending(o, state)
	workers, control, err := s.readNodes(o, state)
	o.scope.workers = s.config.exclude(control)
	s.ask(ctx, o, queryCPUWorkers, queryCPU, queryCPUMin, queryCPUMax)
	s.readCPU(o, workers, control, err)
	return o
}

// bounded returns the context of one observation. A deadline is kept by the clock that set it: what it leaves, by that clock, is what
// the requests may take in real time, at most the timeout.
func (s *Signals) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := s.config.Timeout
	if d, ok := ctx.Deadline(); ok {
		limit = min(limit, d.Sub(s.clock.Now()))
	}
	if ctx.Err() != nil {
		limit = 0
	}
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, cancel)
	return out, func() { stop(); cancel() }
}

// ask asks queries beside each other.
func (s *Signals) ask(ctx context.Context, o *observation, queries ...name) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, n := range queries {
		text := s.config.expand(n, o.scope)
		all.Go(func() {
			a := answer{text: text}
			a.samples, a.err = s.query(ctx, n, text, o.at)
			mu.Lock()
			defer mu.Unlock()
			o.answers[n] = a
		})
	}
	all.Wait()
}

// noneAnswered returns why no query was answered at all, nil if one was, be it by a refusal.
func (o *observation) noneAnswered() error {
	for _, n := range allQueries {
		if a, asked := o.answers[n]; asked && (a.err == nil || !a.err.transport) {
			return nil
		}
	}
	return o.answers[queryState].err
}

// query asks one query and returns its samples, all of them finite.
func (s *Signals) query(ctx context.Context, n name, text string, at time.Time) (model.Vector, *queryError) {
	v, warnings, _, err := s.api.Query(ctx, text, at, v1.WithTimeout(s.config.Timeout))
	switch {
	case err != nil:
		return nil, s.failure(ctx, n, err)
	case len(warnings) > 0: // what a server that asks others says when some did not answer
		return nil, &queryError{why: "the answer may be partial: " + shorten(strings.Join(warnings, "; ")), fix: "see to what Prometheus warns about"}
	}
	vector, ok := v.(model.Vector)
	switch {
	case v == nil: // null is valid JSON, and says nothing
		return nil, &queryError{why: fmt.Sprintf("Prometheus answers %s with nothing", n), fix: "see whether PROMETHEUS_URL names a Prometheus"}
	case !ok:
		return nil, &queryError{why: fmt.Sprintf("%s gives a %s instead of a vector", n, v.Type()), fix: "change " + string(n)}
	}
	for _, sample := range vector {
		if math.IsNaN(float64(sample.Value)) || math.IsInf(float64(sample.Value), 0) || sample.Histogram != nil {
			return nil, &queryError{why: fmt.Sprintf("%s gives something that is not a number", n), fix: "ask Prometheus for it and see which series it comes from"}
		}
	}
	return vector, nil
}

// failure says what an error of the client means.
func (s *Signals) failure(ctx context.Context, n name, err error) *queryError {
	var e *v1.Error
	var ue *url.Error
	var ne net.Error
	switch {
	case ctx.Err() != nil || errors.As(err, &ne) && ne.Timeout():
		return &queryError{transport: true, why: fmt.Sprintf("Prometheus gave no answer within %s", s.config.Timeout),
			fix: "see whether PROMETHEUS_URL can be reached from here and is not overloaded; PROMETHEUS_TIMEOUT_SEC is how long it may take"}
	case errors.As(err, &e) && (e.Type == v1.ErrBadData || e.Type == v1.ErrExec):
		return &queryError{why: fmt.Sprintf("Prometheus refuses %s: %s", n, shorten(e.Msg)), fix: "change " + string(n) + ", or leave it unset for the default"}
	case errors.As(err, &e) && strings.HasPrefix(e.Msg, "client error: 40"):
		return &queryError{why: "Prometheus refuses access: " + detailed(e), fix: "set PROMETHEUS_TOKEN_REF or PROMETHEUS_BASIC_AUTH_REF to valid credentials, and PROMETHEUS_URL to a Prometheus with its path prefix"}
	case errors.As(err, &e):
		return &queryError{why: "Prometheus answers with an error: " + detailed(e), fix: "see whether PROMETHEUS_URL names a Prometheus that is up"}
	case errors.As(err, &ue): // with the address, which is not secret
		return &queryError{transport: true, why: "Prometheus can't be reached: " + shorten(ue.Error()), fix: "see whether PROMETHEUS_URL is right and can be reached from here"}
	}
	return &queryError{transport: true, why: "Prometheus can't be read: " + shorten(err.Error()), fix: "see whether PROMETHEUS_URL names a Prometheus"}
}

func detailed(e *v1.Error) string {
	s := e.Msg
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return shorten(s)
}

// shorten makes what somebody else wrote fit for an event log: one printable line of reasonable length.
func shorten(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == ' ' || r == '\ufffd' }), " ")
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200]) + "..."
	}
	return s
}

// one returns the value of a query that gives one sample.
func (o *observation) one(n name) (float64, *queryError) {
	a := o.answers[n]
	switch {
	case a.err != nil:
		return 0, a.err
	case len(a.samples) == 0:
		return 0, &queryError{why: string(n) + " has no value", fix: "ask Prometheus for it: " + a.text}
	case len(a.samples) > 1:
		return 0, &queryError{why: fmt.Sprintf("%s gives %d series instead of one", n, len(a.samples)), fix: "change " + string(n) + " so that it adds them up"}
	}
	return float64(a.samples[0].Value), nil
}

// stateMetrics returns why what kube-state-metrics exposes can't be relied on, nil if it can: that something is absent means
// something only while it is up.
func (s *Signals) stateMetrics(o *observation) *queryError {
	const fix = "see whether kube-state-metrics runs, collects nodes and pods, and is scraped with honor_labels at least twice within PROMETHEUS_MAX_AGE_SEC, and whether STATE_METRICS_SELECTOR fits its series"
	at, err := o.one(queryState)
	switch {
	case err != nil && o.answers[queryState].err == nil && len(o.answers[queryState].samples) == 0:
		return &queryError{why: "kube-state-metrics is not up: it has no series", fix: fix}
	case err != nil:
		return err
	}
	if age := o.age(at); age > s.config.MaxAge {
		return &queryError{why: fmt.Sprintf("kube-state-metrics is stale: last scraped %s ago", age.Round(time.Second)), fix: fix}
	}
	return nil
}

// age is the time since an epoch in seconds.
func (o *observation) age(epoch float64) time.Duration {
	return time.Duration((float64(o.at.UnixMilli())/1000 - epoch) * float64(time.Second))
}

func (s *Signals) readPending(o *observation, state *queryError) {
	count := func(n name) nodes.Reading {
		if state != nil {
			return nodes.Missing(state.why)
		}
		v, err := o.one(n)
		switch {
		case err != nil && o.answers[n].err == nil && len(o.answers[n].samples) == 0 && o.scope.windows[n] > 0:
			return nodes.Missing(s.tooFew(o, n))
		case err != nil:
			return nodes.Missing(err.why)
		case v < 0:
			return nodes.Missing(fmt.Sprintf("%s is %v: a number of pods can't be below 0", n, v))
		}
		return nodes.Read(v)
	}
	drives := driving(s.policy.Pending)
	other := queryPhase
	if drives == queryPhase {
		other = queryUnsched
	}
	r := &o.readings
	r.Pending, r.PendingOther = count(drives), count(other)
	r.PendingMin, r.PendingMax = count(queryPendingMin), count(queryPendingMax)
}

func (s *Signals) tooFew(o *observation, n name) string {
	w := o.scope.windows[n]
	return fmt.Sprintf("%s has no value: not all %d points of the last %s are there", n, s.config.points(w), w)
}

// readNodes returns the Ready workers and the machines of the control plane, and sets the Ready addresses.
func (s *Signals) readNodes(o *observation, state *queryError) (workers, control []machine, err *queryError) {
	nodesAnswer, controlAnswer := o.answers[queryNodes], o.answers[queryControl]
	switch {
	case state != nil:
		return nil, nil, state
	case nodesAnswer.err != nil:
		return nil, nil, nodesAnswer.err
	case controlAnswer.err != nil:
		return nil, nil, controlAnswer.err
	case len(nodesAnswer.samples) == 0:
		return nil, nil, &queryError{why: "QUERY_NODES has no value: no node is known", fix: "see whether kube-state-metrics collects nodes"}
	}
	isControl := map[string]bool{}
	for _, x := range controlAnswer.samples {
		isControl[string(x.Metric["node"])] = true
	}
	o.readings.ReadyIPsKnown = true
	notReady := 0
	for _, x := range nodesAnswer.samples {
		m := machine{node: string(x.Metric["node"]), ip: string(x.Metric["internal_ip"])}
		o.machines = append(o.machines, m)
		ready := x.Value == 1
		if ready && m.ip != "" {
			o.readings.ReadyIPs = append(o.readings.ReadyIPs, m.ip)
		}
		switch {
		case isControl[m.node]:
			control = append(control, m)
		case ready:
			workers = append(workers, m)
		default:
			notReady++
		}
	}
	slices.Sort(o.readings.ReadyIPs)
	slices.SortFunc(control, func(a, b machine) int { return strings.Compare(a.node, b.node) })
	if len(workers) == 0 && notReady > 0 {
		return nil, control, &queryError{why: fmt.Sprintf("none of %d workers is Ready", notReady), fix: "see why the nodes are not Ready"}
	}
	return workers, control, nil
}

func (s *Signals) readCPU(o *observation, workers, control []machine, err *queryError) {
	r := &o.readings
	if err == nil && len(workers) == 0 { // nothing runs where nothing is; without this a cluster could never grow from zero
		r.CPU, r.CPUMin, r.CPUMax = nodes.Read(0), nodes.Read(0), nodes.Read(0)
		return
	}
	if err == nil {
		err = s.complete(o, workers, control)
	}
	utilisation := func(n name) nodes.Reading {
		if err != nil {
			return nodes.Missing(err.why)
		}
		v, qerr := o.one(n)
		switch {
		case qerr != nil && o.answers[n].err == nil && len(o.answers[n].samples) == 0 && o.scope.windows[n] > 0:
			return nodes.Missing(s.tooFew(o, n))
		case qerr != nil:
			return nodes.Missing(qerr.why)
		case v < -0.05 || v > 1.05: // a rate is extrapolated to the edges of its window and may be off by a few percent
			return nodes.Missing(fmt.Sprintf("%s is %v: a utilisation is between 0 and 1", n, v))
		}
		return nodes.Read(min(max(v, 0), 1))
	}
	r.CPU, r.CPUMin, r.CPUMax = utilisation(queryCPU), utilisation(queryCPUMin), utilisation(queryCPUMax)
}

// complete returns why the average utilisation is not that of the workers, nil if it is: every Ready worker's machine is in it, with
// a fresh sample, and no machine that isn't a node of this cluster.
func (s *Signals) complete(o *observation, workers, control []machine) *queryError {
	a := o.answers[queryCPUWorkers]
	if a.err != nil {
		return a.err
	}
	scraped := map[string]float64{} // by address without port, or name
	for _, x := range a.samples {
		host := hostOf(string(x.Metric[model.LabelName(s.config.InstanceLabel)]))
		if t, ok := scraped[host]; !ok || float64(x.Value) < t {
			scraped[host] = float64(x.Value)
		}
	}
	var without, stale []string
	for _, m := range workers {
		t, ok := scraped[m.ip]
		if !ok || m.ip == "" {
			t, ok = scraped[m.node]
		}
		switch {
		case !ok:
			without = append(without, m.node)
		case o.age(t) > s.config.MaxAge:
			stale = append(stale, m.node)
		}
	}
	foreign := func() (out []string) {
		for host := range scraped {
			if !slices.ContainsFunc(o.machines, func(m machine) bool { return (m.ip == host || m.node == host) && !slices.Contains(control, m) }) {
				out = append(out, host)
			}
		}
		return out
	}
	switch {
	case len(without) > 0:
		return &queryError{why: fmt.Sprintf("%d of %d Ready workers have no CPU series: %s", len(without), len(workers), some(without)),
			fix: "see whether node-exporter runs on every worker and is scraped, and whether WORKER_SELECTOR and INSTANCE_LABEL fit its series"}
	case len(stale) > 0:
		return &queryError{why: fmt.Sprintf("%d of %d Ready workers have stale CPU series: %s", len(stale), len(workers), some(stale)),
			fix: "see why Prometheus doesn't scrape them; PROMETHEUS_MAX_AGE_SEC has to be above twice the scrape interval"}
	case len(scraped) > len(workers):
		if f := foreign(); len(f) > 0 {
			return &queryError{why: fmt.Sprintf("CPU series of %d machines that are no workers of this cluster are among those asked for: %s", len(f), some(f)),
				fix: "set WORKER_SELECTOR so that only this cluster's workers match"}
		}
	}
	return nil
}

// hostOf returns an instance label's value without the port.
func hostOf(s string) string {
	if host, _, err := net.SplitHostPort(s); err == nil {
		return host
	}
	return strings.Trim(s, "[]")
}

// some lists a few names in order.
func some(list []string) string {
	slices.Sort(list)
	if len(list) > 3 {
		return strings.Join(list[:3], ", ") + ", ..."
	}
	return strings.Join(list, ", ")
}
