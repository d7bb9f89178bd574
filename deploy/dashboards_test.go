package deploy

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/deploy/grafana"
	"github.com/muster-dev/muster/internal/promtest"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitionprom"
)

// uids never change: links and bookmarks name them.
var uids = map[string]string{"nodes.json": "muster-nodes", "partitions.json": "muster-partitions", "groups.json": "muster-groups", "defender.json": "muster-defender"}

func dashboards(t *testing.T) []grafana.Dashboard {
	t.Helper()
	all, err := grafana.Dashboards()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(uids) {
		t.Fatalf("there are %d dashboards, want %d", len(all), len(uids))
	}
	return all
}

// expression parses a query as Prometheus gets it: with Grafana's variables filled in.
func expression(t *testing.T, query string) parser.Expr {
	t.Helper()
	filled := strings.NewReplacer("$__rate_interval", "1m", "$__interval", "15s", "$__range", "3h", "$group", "orders").Replace(query)
	e, err := promtest.Parser.ParseExpr(filled)
	if err != nil {
		t.Errorf("%s: %v", query, err)
	}
	return e
}

func TestDashboardsAreComplete(t *testing.T) {
	t.Parallel()
	for _, d := range dashboards(t) {
		t.Run(d.File, func(t *testing.T) {
			t.Parallel()
			if d.UID != uids[d.File] || d.SchemaVersion != grafana.SchemaVersion || d.Title == "" || d.Description == "" || !slices.Contains(d.Tags, "muster") {
				t.Errorf("uid %q, schema %d, title %q, description %q, tags %q", d.UID, d.SchemaVersion, d.Title, d.Description, d.Tags)
			}
			if len(d.Links) != 1 || d.Links[0].Type != "dashboards" || !slices.Equal(d.Links[0].Tags, []string{"muster"}) || !d.Links[0].KeepTime || !d.Links[0].IncludeVars {
				t.Errorf("it does not lead to the others: %+v", d.Links)
			}
			kinds := map[string]string{}
			for _, v := range d.Templating.List {
				kinds[v.Name] = v.Type
			}
			if kinds["datasource"] != "datasource" || kinds["filters"] != "adhoc" {
				t.Errorf("its variables are %v", kinds)
			}
			ids, places := map[int]bool{}, map[[2]int]string{}
			for _, p := range d.Panels {
				if p.ID <= 0 || ids[p.ID] {
					t.Errorf("panel %q has id %d, as another has", p.Title, p.ID)
				}
				ids[p.ID] = true
				checkPlace(t, p, places)
				checkPanel(t, p)
			}
		})
	}
}

// checkPlace notes the squares of the grid that a panel takes, which must be free.
func checkPlace(t *testing.T, p grafana.Panel, taken map[[2]int]string) {
	t.Helper()
	g := p.GridPos
	if g.X < 0 || g.Y < 0 || g.W <= 0 || g.H <= 0 || g.X+g.W > 24 {
		t.Errorf("panel %q is outside of the grid: %+v", p.Title, g)
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			if by, ok := taken[[2]int{x, y}]; ok {
				t.Errorf("panels %q and %q are in one place", by, p.Title)
				return
			}
			taken[[2]int{x, y}] = p.Title
		}
	}
}

var panelTypes = []string{"stat", "timeseries", "state-timeline", "heatmap", "table"}

func checkPanel(t *testing.T, p grafana.Panel) {
	t.Helper()
	if p.Title == "" {
		t.Errorf("panel %d has no title", p.ID)
	}
	if p.Type == "row" {
		if p.Collapsed || len(p.Panels)+len(p.Targets) > 0 {
			t.Errorf("row %q is collapsed or has queries", p.Title)
		}
		return
	}
	steps := p.FieldConfig.Defaults.Thresholds.Steps
	if !slices.Contains(panelTypes, p.Type) || len(p.Description) < 10 || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || len(steps) == 0 || steps[0].Value != nil {
		t.Errorf("panel %q lacks a known type (%s), a description, a unit, queries or thresholds from the least value on", p.Title, p.Type)
	}
	for i := 1; i < len(steps); i++ {
		if steps[i].Value == nil || i > 1 && *steps[i].Value <= *steps[i-1].Value {
			t.Errorf("panel %q: the thresholds do not rise", p.Title)
		}
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if refs[q.RefID] || q.Range == q.Instant || q.Datasource.UID != "${datasource}" || q.Datasource.Type != "prometheus" || p.Datasource != q.Datasource {
			t.Errorf("panel %q: query %+v", p.Title, q)
		}
		refs[q.RefID] = true
		e := expression(t, q.Expr)
		if e == nil {
			continue
		}
		if kind := e.Type(); kind != parser.ValueTypeVector && kind != parser.ValueTypeScalar {
			t.Errorf("panel %q: %s is a %s, which can't be drawn", p.Title, q.Expr, kind)
		}
	}
}

// metricsOf returns the metrics that an expression names, a histogram's series by its name.
func metricsOf(e parser.Expr, exported map[string]bool) []string {
	all := map[string]bool{}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			name := v.Name
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if base := strings.TrimSuffix(name, suffix); exported[base] {
					name = base
				}
			}
			all[name] = true
		}
		return nil
	})
	return slices.Sorted(maps.Keys(all))
}

// exportedMetrics returns the names of what Muster exports: of a defender what its collectors describe, of the node plane's daemon, whose
// series come into being with what they count, what its source names.
func exportedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	w, err := partition.New(new(nats.Conn), defender.Partition(8), partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	metrics := defender.NewMetrics(nil)
	if _, err := defender.New(defender.Config{Store: struct{ defender.Store }{}, Conn: new(nats.Conn), Metrics: metrics,
		Judge: func([]uchart.Point, *uchart.Chart) uchart.Verdict { return uchart.Verdict{} }}); err != nil {
		t.Fatal(err)
	}
	all := described(append(metrics.Collectors(), partitionprom.NewCollector(w, defender.WorkerMetrics(nil)), partitionprom.NewCollector(w, partitionprom.Options{})))
	named := regexp.MustCompile(`(?:counters?|histograms|gauge|prefix \+ )\(?"([a-z_]+)"`).FindAllStringSubmatch(daemonMetrics(t), -1)
	for _, n := range named {
		all["muster_nodes_"+n[1]] = true
	}
	if len(named) < 25 {
		t.Errorf("of the daemon's metrics only %d were found", len(named))
	}
	return all
}

// daemonMetrics is the source text that names the daemon's metrics.
func daemonMetrics(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, file := range []string{"counters.go", "gauges.go"} {
		source, err := os.ReadFile("../nodes/daemon/" + file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(source)
	}
	return text.String()
}

// A panel about a metric that nobody exports stays empty, and a metric that is on no panel is seen by nobody.
func TestDashboardsShowEveryMetricAndNoOther(t *testing.T) {
	t.Parallel()
	exported, shown := exportedMetrics(t), map[string]bool{}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				e := expression(t, q.Expr)
				if e == nil {
					continue
				}
				names := metricsOf(e, exported)
				if len(names) == 0 {
					t.Errorf("%s, %q asks for nothing", d.File, p.Title)
				}
				for _, name := range names {
					shown[name] = true
					if !exported[name] {
						t.Errorf("%s, %q: nobody exports %s", d.File, p.Title, name)
					}
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(exported)) {
		if !shown[name] {
			t.Errorf("%s is on no dashboard", name)
		}
	}
}

// TestDashboardsGoWithTheAlerts: a panel that names an alert has one that exists and, if it has thresholds, one of the alert's numbers
// among them. Each alert about a number that changes is named where that number is shown.
func TestDashboardsGoWithTheAlerts(t *testing.T) {
	t.Parallel()
	alerts, named := map[string]rulefmt.Rule{}, map[string]bool{}
	for _, plane := range []string{workerRules, groupRules, nodeRules} {
		for _, r := range rules(t, plane) {
			alerts[r.Alert] = r
		}
	}
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			checkAlerts(t, p, alerts, named)
		}
	}
	for name := range alerts {
		if !named[name] && name != "NodesDaemonGone" { // all of the dashboard is empty then
			t.Errorf("no panel shows what %s is about", name)
		}
	}
}

var alertName = regexp.MustCompile(`\b(?:Nodes|Partitions|Group)[A-Z][A-Za-z]+`)

func checkAlerts(t *testing.T, p grafana.Panel, alerts map[string]rulefmt.Rule, named map[string]bool) {
	t.Helper()
	numbers, shared := map[float64]bool{}, false
	about := alertName.FindAllString(p.Description, -1)
	for _, a := range about {
		r, ok := alerts[a]
		if !ok {
			t.Errorf("panel %q names %s, which is no alert", p.Title, a)
			continue
		}
		named[a] = true
		e, err := promtest.Parser.ParseExpr(r.Expr)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			if l, ok := n.(*parser.NumberLiteral); ok {
				numbers[l.Val] = true
			}
			return nil
		})
		mine := map[string]bool{}
		for _, q := range p.Targets {
			if e := expression(t, q.Expr); e != nil {
				for _, m := range metricsOf(e, nil) {
					mine[m] = true
				}
			}
		}
		if !slices.ContainsFunc(metricsOf(e, nil), func(m string) bool { return mine[m] }) {
			t.Errorf("panel %q names %s, which is about other metrics", p.Title, a)
		}
	}
	steps := p.FieldConfig.Defaults.Thresholds.Steps
	for _, s := range steps {
		// Of whole numbers, more than 0 is 1.
		shared = shared || s.Value != nil && (numbers[*s.Value] || *s.Value == 1 && numbers[0])
	}
	if len(numbers) > 0 && len(steps) > 1 && !shared {
		t.Errorf("panel %q: none of its thresholds is of %q", p.Title, about)
	}
}

// TestAnyGroupHasTheDefendersPanels: the dashboard for any group asks what the one of the defenders asks, by the fixed names and for
// the chosen group, without what only a defender counts.
func TestAnyGroupHasTheDefendersPanels(t *testing.T) {
	t.Parallel()
	var defenders, groups grafana.Dashboard
	for _, d := range dashboards(t) {
		switch d.File {
		case "partitions.json":
			defenders = d
		case "groups.json":
			groups = d
		}
	}
	if !slices.ContainsFunc(groups.Templating.List, func(v grafana.Variable) bool { return v.Name == "group" && v.Type == "query" }) {
		t.Error("the group can't be chosen")
	}

	metric, onlyDefenders := regexp.MustCompile(`defender_([a-z_]+)(?:\{([^}]*)\})?`), []string{"defender_fence_rejections_total", "defender_messages_dead_total"}
	words := strings.NewReplacer("active_defenders", "active_workers", "chamber_movements", "key_movements", "_chambers", "_keys")
	var want, got []string
	for _, p := range defenders.Panels {
		for _, q := range p.Targets {
			if slices.ContainsFunc(onlyDefenders, func(name string) bool { return strings.Contains(q.Expr, name) }) {
				continue
			}
			want = append(want, metric.ReplaceAllStringFunc(q.Expr, func(selector string) string {
				parts := metric.FindStringSubmatch(selector)
				labels := `group="$group"`
				if parts[2] != "" {
					labels += "," + parts[2]
				}
				return "muster_partition_" + words.Replace(parts[1]) + "{" + labels + "}"
			}))
		}
	}
	for _, p := range groups.Panels {
		for _, q := range p.Targets {
			got = append(got, q.Expr)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("it asks\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
