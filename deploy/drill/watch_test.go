package drill

import (
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"

	"github.com/muster-dev/muster/internal/promtest"
)

// scrapeEvery is how often a Prometheus scrapes and evaluates here.
const scrapeEvery = 15 * time.Second

// outcome is what one alert did after a fault, by the time since then.
type outcome struct {
	True  time.Duration // until its condition held first
	Fired time.Duration // until it fired; 0: it never did
}

// prometheus scrapes, evaluates the rules of one plane and remembers which fired.
type prometheus struct {
	rules  []rulefmt.Rule
	engine *promql.Engine
	series *promtest.Series
	used   map[string]bool                 // metrics that the rules are about
	since  map[string]map[string]time.Time // by alert and labels: since when the condition has held
	held   map[string]time.Time            // by alert: when it held first
	fired  map[string]time.Time
}

func readRules(t *testing.T, plane string) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../prometheus/"+plane+".yaml", false, model.UTF8Validation, promtest.Parser, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Fatal(err)
	}
	var out []rulefmt.Rule
	for _, g := range groups.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

var metricName = regexp.MustCompile(`(defender|muster_nodes)_[a-z_]+`)

func newPrometheus(t *testing.T, plane string) *prometheus {
	t.Helper()
	p := &prometheus{rules: readRules(t, plane), engine: promtest.NewEngine(), series: new(promtest.Series), used: map[string]bool{},
		since: map[string]map[string]time.Time{}, held: map[string]time.Time{}, fired: map[string]time.Time{}}
	t.Cleanup(func() { _ = p.engine.Close() })
	for _, r := range p.rules {
		for _, name := range metricName.FindAllString(r.Expr, -1) {
			p.used[strings.TrimSuffix(name, "_bucket")] = true
		}
	}
	return p
}

// scraped takes what the targets gave at one time; a target that gave nothing is left out.
func (p *prometheus) scraped(at time.Time, targets map[string][]*dto.MetricFamily) {
	var all []*dto.MetricFamily
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		instance := name
		for _, f := range targets[name] {
			if !p.used[f.GetName()] { // the rules are all that is asked
				continue
			}
			for _, m := range f.Metric {
				m.Label = append(m.Label, &dto.LabelPair{Name: new("instance"), Value: &instance})
			}
			all = append(all, f)
		}
	}
	p.series.Scraped(at, all, map[string]string{"job": "muster"})
}

// evaluate does one round of the rules.
func (p *prometheus) evaluate(t *testing.T, at time.Time) {
	t.Helper()
	for _, r := range p.rules {
		q, err := p.engine.NewInstantQuery(t.Context(), p.series, nil, r.Expr, at)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		vector, err := q.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		before, now := p.since[r.Alert], map[string]time.Time{}
		for _, s := range vector {
			key := s.Metric.String()
			now[key] = at
			if since, ok := before[key]; ok {
				now[key] = since
			}
			if p.held[r.Alert].IsZero() {
				p.held[r.Alert] = at
			}
			if p.fired[r.Alert].IsZero() && at.Sub(now[key]) >= time.Duration(r.For) {
				p.fired[r.Alert] = at
				t.Logf("%s fires with %s %v", r.Alert, key, s.F)
			}
		}
		p.since[r.Alert] = now
		q.Close()
	}
}

// outcomes returns what each alert did, by the time since a fault.
func (p *prometheus) outcomes(fault time.Time) map[string]outcome {
	out := map[string]outcome{}
	for alert, at := range p.held {
		o := outcome{True: at.Sub(fault)}
		if fired, ok := p.fired[alert]; ok {
			o.Fired = fired.Sub(fault)
		}
		out[alert] = o
	}
	return out
}

// check compares the alerts that fired with those that should have, and notes the times for the table.
func (p *prometheus) check(t *testing.T, d string, fault time.Time, want ...string) {
	t.Helper()
	got := slices.Sorted(maps.Keys(p.fired))
	slices.Sort(want)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v fired, want %v", got, want)
	}
	for alert, o := range p.outcomes(fault) {
		t.Logf("%s: true after %.0f s, fired after %.0f s", alert, o.True.Seconds(), o.Fired.Seconds())
	}
}
