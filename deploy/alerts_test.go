package deploy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	promtemplate "github.com/prometheus/prometheus/template"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/promtest"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitionprom"
)

// The planes with rules: prometheus/NAME.yaml, tested by prometheus/NAME_test.yaml.
const workerRules, groupRules, nodeRules = "partitions", "groups", "nodes"

// ruleTests is the file of tests. Alerts are given by their labels and, as
// "summary", that annotation.
type ruleTests struct {
	Interval model.Duration `json:"interval"`
	Tests    []struct {
		Name   string                         `json:"name"`
		Series map[string]string              `json:"series"`
		At     map[string][]map[string]string `json:"at"`
	} `json:"tests"`
}

func rules(t *testing.T, plane string) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("prometheus/"+plane+".yaml", false, model.UTF8Validation, promtest.Parser, slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		t.FailNow()
	}
	var out []rulefmt.Rule
	for _, g := range groups.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// TestAlertRules evaluates the rules with Prometheus' own engine on the series of
// the tests, at every interval, as Prometheus does.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	for _, plane := range []string{workerRules, groupRules, nodeRules} {
		t.Run(plane, func(t *testing.T) {
			t.Parallel()
			testRules(t, plane)
		})
	}
}

func testRules(t *testing.T, plane string) {
	all := rules(t, plane)
	text, err := os.ReadFile("prometheus/" + plane + "_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tests ruleTests
	if err := yaml.UnmarshalStrict(text, &tests); err != nil {
		t.Fatal(err)
	}
	fired, near := map[string]bool{}, 0
	for _, c := range tests.Tests {
		none := true
		for _, alerts := range c.At {
			for _, a := range alerts {
				fired[a["alert"]], none = true, false
			}
		}
		if none {
			near++
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			step, s := time.Duration(tests.Interval), new(promtest.Series)
			for desc, values := range c.Series {
				if err := s.Describe(desc+" "+values, step); err != nil {
					t.Fatal(err)
				}
			}
			for at, want := range c.At {
				d, err := model.ParseDuration(at)
				if err != nil {
					t.Fatal(err)
				}
				got := firing(t, all, s, step, time.Duration(d))
				if g, w := shown(got), shown(want); g != w {
					t.Errorf("at %s fires:\n%swant:\n%s", at, g, w)
				}
			}
		})
	}
	for _, r := range all {
		if !fired[r.Alert] {
			t.Errorf("no test fires %s", r.Alert)
		}
	}
	if near < len(all) {
		t.Errorf("%d tests in which nothing fires, for %d alerts", near, len(all))
	}
}

func shown(alerts []map[string]string) string {
	var lines []string
	for _, a := range alerts {
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(a)) {
			fmt.Fprintf(&b, " %s=%q", k, a[k])
		}
		lines = append(lines, b.String())
	}
	slices.Sort(lines)
	return strings.Join(append(lines, ""), "\n")
}

// firing returns the alerts that fire at a time: those whose condition has held
// at every evaluation for as long as the rule wants.
func firing(t *testing.T, all []rulefmt.Rule, s *promtest.Series, step, until time.Duration) []map[string]string {
	t.Helper()
	engine := promtest.NewEngine()
	t.Cleanup(func() { _ = engine.Close() })
	var out []map[string]string
	for _, r := range all {
		since := map[string]time.Duration{} // by labels
		for at := max(0, until-time.Duration(r.For)-2*step); at <= until; at += step {
			q, err := engine.NewInstantQuery(t.Context(), s, nil, r.Expr, time.UnixMilli(at.Milliseconds()))
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			result := q.Exec(t.Context())
			vector, err := result.Vector()
			if err != nil {
				t.Fatalf("%s: %v", r.Alert, err)
			}
			now := map[string]time.Duration{}
			for _, sample := range vector {
				key := sample.Metric.String()
				now[key] = at
				if before, held := since[key]; held {
					now[key] = before
				}
				if at == until && at-now[key] >= time.Duration(r.For) {
					out = append(out, alert(t, r, sample, at))
				}
			}
			since = now
			q.Close()
		}
	}
	return out
}

// alert makes an alert of a rule and a sample, with its summary filled in.
func alert(t *testing.T, r rulefmt.Rule, s promql.Sample, at time.Duration) map[string]string {
	t.Helper()
	a := s.Metric.Map()
	delete(a, model.MetricNameLabel)
	maps.Copy(a, r.Labels)
	data := promtemplate.AlertTemplateData(a, nil, "", s)
	for name, text := range r.Annotations {
		e := promtemplate.NewTemplateExpander(t.Context(), "{{$labels := .Labels}}{{$value := .Value}}"+text, r.Alert, data, model.Time(at.Milliseconds()), nil, nil, nil)
		filled, err := e.Expand()
		if err != nil {
			t.Errorf("%s, %s: %v", r.Alert, name, err)
		}
		if name == "summary" {
			defer func() { a["summary"] = filled }()
		}
	}
	a["alert"] = r.Alert
	return a
}

// A rule about a metric that nobody exports never fires.
func TestAlertRulesNameMetricsThatWorkersExport(t *testing.T) {
	t.Parallel()
	w, err := partition.New(new(nats.Conn), defender.Partition(8), partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		rules      string
		names      *regexp.Regexp
		collectors []prometheus.Collector
	}{
		{workerRules, regexp.MustCompile(`defender_[a-z_]+`), append(defender.NewMetrics(nil).Collectors(), partitionprom.NewCollector(w, defender.WorkerMetrics(nil)))},
		{groupRules, regexp.MustCompile(`muster_partition_[a-z_]+`), []prometheus.Collector{partitionprom.NewCollector(w, partitionprom.Options{})}},
	} {
		t.Run(tt.rules, func(t *testing.T) {
			t.Parallel()
			exported := described(tt.collectors)
			for _, r := range rules(t, tt.rules) {
				for _, name := range tt.names.FindAllString(r.Expr, -1) {
					metric := strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
					if !exported[metric] {
						t.Errorf("%s: no worker exports %s", r.Alert, name)
					}
				}
				complete(t, r)
			}
		})
	}
}

// described returns the names of the collectors' metrics.
func described(collectors []prometheus.Collector) map[string]bool {
	names, describe := map[string]bool{}, regexp.MustCompile(`fqName: "([^"]+)"`)
	for _, c := range collectors {
		ch := make(chan *prometheus.Desc, 100)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			names[describe.FindStringSubmatch(d.String())[1]] = true
		}
	}
	return names
}

func complete(t *testing.T, r rulefmt.Rule) {
	t.Helper()
	if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
		t.Errorf("%s lacks a summary, a description or a severity", r.Alert)
	}
}

// The daemon's metrics come into being with what they count, so their names are read where they are given.
func TestAlertRulesNameMetricsThatTheDaemonExports(t *testing.T) {
	t.Parallel()
	source := daemonMetrics(t)
	used := regexp.MustCompile(`muster_nodes_([a-z_]+)`)
	for _, r := range rules(t, nodeRules) {
		names := used.FindAllStringSubmatch(r.Expr, -1)
		for _, name := range names {
			if !strings.Contains(source, `"`+name[1]+`"`) {
				t.Errorf("%s: the daemon exports no %s", r.Alert, name[0])
			}
		}
		if len(names) == 0 {
			t.Errorf("%s is about nothing of the daemon's", r.Alert)
		}
		complete(t, r)
	}
}
