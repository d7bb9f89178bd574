//go:build !race

package drill

import (
	"context"
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
	"github.com/muster-dev/muster/nodes"
)

// outcome is when, after a fault, the condition of an alert came to hold and the alert to fire.
type outcome struct{ held, fired time.Duration }

// prometheus scrapes, evaluates the rules of one plane and remembers which fired.
type prometheus struct {
	rules  []rulefmt.Rule
	engine *promql.Engine
	series *promtest.Series
	used   map[string]bool                 // metrics that the rules are about
	since  map[string]map[string]time.Time // by alert and labels: since when the condition has held
	held   map[string]time.Time            // by alert that fired: since when its condition had held
	fired  map[string]time.Time
	end    func() // of scraping
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

// watch scrapes and evaluates, beginning after a time, until end or the end of the test.
func (p *prometheus) watch(t *testing.T, after, every time.Duration, scrape func() map[string][]*dto.MetricFamily) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	p.end = func() { stop(); <-ended }
	t.Cleanup(p.end)
	go func() {
		defer close(ended)
		for wait := after; sleep(ctx, wait) == nil; wait = every {
			p.scraped(time.Now(), scrape())
			p.evaluate(t, time.Now())
		}
	}()
}

func sleep(ctx context.Context, d time.Duration) error { return nodes.SystemClock{}.Sleep(ctx, d) }

// evaluate does one round of the rules.
func (p *prometheus) evaluate(t *testing.T, at time.Time) {
	t.Helper()
	for _, r := range p.rules {
		q, err := p.engine.NewInstantQuery(context.Background(), p.series, nil, r.Expr, at)
		if err != nil {
			t.Fatalf("%s: %v", r.Alert, err)
		}
		vector, err := q.Exec(context.Background()).Vector()
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
			if p.fired[r.Alert].IsZero() && at.Sub(now[key]) >= time.Duration(r.For) {
				p.held[r.Alert], p.fired[r.Alert] = now[key], at
				t.Logf("%s fires with %s %v", r.Alert, key, s.F)
			}
		}
		p.since[r.Alert] = now
		q.Close()
	}
}

// check ends scraping and compares the alerts that fired with those that should have.
func (p *prometheus) check(t *testing.T, drill string, fault time.Time, want ...string) {
	t.Helper()
	p.end()
	got := slices.Sorted(maps.Keys(p.fired))
	slices.Sort(want)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v fired, want %v", got, want)
	}
	for _, alert := range got {
		o := outcome{p.held[alert].Sub(fault), p.fired[alert].Sub(fault)}
		t.Logf("%s | %s | %.0f | %.0f", alert, drill, o.held.Seconds(), o.fired.Seconds())
	}
}
