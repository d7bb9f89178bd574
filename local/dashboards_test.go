//go:build !race

package local

import (
	"context"
	"errors"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/deploy/grafana"
	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/internal/promtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/partition"
)

// How a Prometheus would scrape, and Grafana ask, that has a minute in as many seconds.
const (
	testScrape = 500 * time.Millisecond
	testWindow = "10s" // $__rate_interval
)

// notOnUp are series that no run of up has, with some to show that the queries about them are right all the same.
var notOnUp = map[string]string{
	// Nobody asks the simulated cluster with a token.
	"muster_nodes_kubernetes_token_expires_timestamp_seconds": `muster_nodes_kubernetes_token_expires_timestamp_seconds{instance="n"} 2e9x20`,
	// Its node plane has no POOLS.
	"muster_nodes_pool_nodes":                `muster_nodes_pool_nodes{instance="n",pool="general"} 2x20`,
	"muster_nodes_pool_max_nodes":            `muster_nodes_pool_max_nodes{instance="n",pool="general"} 5x20`,
	"muster_nodes_pool_backoff_seconds_left": `muster_nodes_pool_backoff_seconds_left{instance="n",pool="general"} 0x20`,
}

// TestDashboardsShowDataOfARunningUp has a node launched, a defender killed and a Spot instance warned on a running up, scrapes its page
// meanwhile, and asks every query of every dashboard: each has to return a number. Without the race detector, which it would only slow.
func TestDashboardsShowDataOfARunningUp(t *testing.T) {
	t.Parallel()
	all, err := grafana.Dashboards()
	if err != nil {
		t.Fatal(err)
	}
	out, seen := new(output.Buffer), new(promtest.Series)
	// One node of ten places, so that the eleventh defender waits for another.
	o := Options{GroupOptions: GroupOptions{Defenders: 4, Chambers: 120, Slots: 48, Expect: true}, TrafficOptions: TrafficOptions{Rate: 120, Seed: 1},
		ConsoleOptions: ConsoleOptions{HTTP: "127.0.0.1:0"}, NodeOptions: NodeOptions{boot: 6 * time.Second, pendingUp: 2 * time.Second}, Busy: true, Dir: t.TempDir(), Out: out}
	var work atomic.Int64
	work.Store(int64(2 * time.Millisecond))
	slower := Hooks{Open: func(ctx context.Context, o service.Options, store defender.Store) (Defender, error) {
		return openDefender(ctx, o, slowStore{store, &work})
	}}
	began := time.Now()
	scraping, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { scrapeUp(scraping, out, seen) })
	err = up(t.Context(), o, slower, func(ctx context.Context, s *Cluster) error { return somethingOfEverything(ctx, s, seen, &work) })
	stop()
	wg.Wait()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, desc := range notOnUp {
		if err := seen.Describe(desc, testScrape); err != nil {
			t.Fatal(err)
		}
	}
	ended := time.Now()
	t.Logf("up ran for %s; %d metrics were seen", ended.Sub(began).Round(time.Second), len(seen.Names()))
	// Of groups besides the defenders none runs.
	all = slices.DeleteFunc(all, func(d grafana.Dashboard) bool { return d.File == "groups.json" })
	checkNames(t, all, seen)
	for _, d := range all {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if n := numbers(t, seen, q, began, ended); n == 0 {
					t.Errorf("%s, %q: %s returns nothing", d.File, p.Title, q.Expr)
				}
			}
		}
	}
}

// somethingOfEverything lets happen what the panels are about, and waits until it was seen.
func somethingOfEverything(ctx context.Context, t *Cluster, seen *promtest.Series, work *atomic.Int64) error {
	has := func(query string) func() bool {
		var last time.Time
		return func() bool { // an answer costs more than waiting does
			if time.Since(last) < testScrape {
				return false
			}
			last = time.Now()
			return asked(seen, query, last)
		}
	}
	// The leader lives: it reports the death.
	for _, m := range t.workers.Defenders.Running() {
		if m != processOf(t.workers.Defenders, t.workers.View.Latest().Leader.ID) {
			m.Kill()
			break
		}
	}
	if err := t.Wait(ctx, time.Minute, "a death detected", has("sum(defender_detection_seconds_count) > 0")); err != nil {
		return err
	}
	if err := t.deploy.scale(ctx, DefendersPerNode+1); err != nil {
		return err
	}
	if err := t.Wait(ctx, 2*time.Minute, "a scale-up completed", has(`sum(muster_nodes_action_duration_seconds_count{kind="scale-up",result="completed"}) > 0`)); err != nil {
		return err
	}
	var launched string
	for _, e := range t.Ledger(sim.Launched, time.Time{}) {
		launched = e.Instance
	}
	t.Interrupt(ctx, t.Region.Simulator.Announce(nodes.Warning, launched))
	if err := t.Wait(ctx, time.Minute, "an interruption open", has("min(muster_nodes_interruption_seconds_left) > 0")); err != nil {
		return err
	}
	// A pause is felt only by a message that waits while its slot is handed off.
	t.workers.Traffic.Rate.Store(0)
	work.Store(int64(time.Second))
	for i := 0; !asked(seen, "sum(defender_handoff_pause_seconds_count) > 0", time.Now()); i++ {
		oneOf := map[int]int{} // chamber, by slot
		for i, ch := range t.workers.Chambers {
			oneOf[partition.SlotOf(t.workers.o.Slots, ch.Tool, ch.Name)] = i
		}
		for _, chamber := range oneOf {
			for range 3 {
				t.workers.Traffic.Queue(Order{Chamber: chamber})
			}
		}
		if err := t.deploy.scale(ctx, 4+i%2*4); err != nil {
			return err
		}
		err := t.Wait(ctx, 3*time.Second, "a pause felt", has("sum(defender_handoff_pause_seconds_count) > 0"))
		if err != nil && i == 6 {
			return err
		}
	}
	scraped := seen.Scrapes()
	return t.Wait(ctx, time.Minute, "what came last scraped again", func() bool { return seen.Scrapes() >= scraped+2 })
}

// slowStore takes a while to store a result.
type slowStore struct {
	defender.Store
	work *atomic.Int64 // ns
}

func (s slowStore) Commit(ctx context.Context, f defender.Fence, r defender.Result) (defender.CommitOutcome, error) {
	select {
	case <-time.After(time.Duration(s.work.Load())):
		return s.Store.Commit(ctx, f, r)
	case <-ctx.Done():
		return defender.CommitOutcome{}, ctx.Err()
	}
}

// scrapeUp scrapes the page that up says it serves.
func scrapeUp(ctx context.Context, out *output.Buffer, to *promtest.Series) {
	page := regexp.MustCompile(`http://(\S+)/metrics`)
	tick := time.NewTicker(testScrape)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		address := page.FindStringSubmatch(out.String())
		if address == nil {
			continue
		}
		if families, err := scrape(address[1]); err == nil { // a scrape that fails is a gap, as everywhere
			to.Scraped(time.Now(), families, map[string]string{"job": "up", "instance": address[1]})
		}
	}
}

// asked reports whether a query has an answer now.
func asked(s *promtest.Series, query string, at time.Time) bool {
	v, err := answer(s, func(e *promql.Engine) (promql.Query, error) {
		return e.NewInstantQuery(context.Background(), s, nil, query, at)
	})
	return err == nil && v > 0
}

// numbers returns how many numbers a panel's query returns of a run.
func numbers(t *testing.T, s *promtest.Series, q grafana.Target, from, to time.Time) int {
	t.Helper()
	expr := strings.NewReplacer("$__rate_interval", testWindow, "$__range", to.Sub(from).Round(time.Second).String()).Replace(q.Expr)
	ask := func(e *promql.Engine) (promql.Query, error) {
		return e.NewRangeQuery(t.Context(), s, nil, expr, from, to, time.Second)
	}
	if q.Instant {
		ask = func(e *promql.Engine) (promql.Query, error) {
			return e.NewInstantQuery(t.Context(), s, nil, expr, to.Add(-time.Second))
		}
	}
	for name := range notOnUp {
		if strings.Contains(expr, name) { // its series begin where Unix time does
			ask = func(e *promql.Engine) (promql.Query, error) {
				return e.NewInstantQuery(t.Context(), s, nil, expr, time.Unix(1, 0))
			}
		}
	}
	n, err := answer(s, ask)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	return n
}

// answer returns how many numbers the answer to a query has.
func answer(s *promtest.Series, ask func(*promql.Engine) (promql.Query, error)) (int, error) {
	e := promtest.NewEngine()
	defer func() { _ = e.Close() }()
	q, err := ask(e)
	if err != nil {
		return 0, err
	}
	defer q.Close()
	n := 0
	count := func(v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			n++
		}
	}
	r := q.Exec(context.Background())
	switch v := r.Value.(type) {
	case promql.Vector:
		for _, x := range v {
			count(x.F)
		}
	case promql.Matrix:
		for _, series := range v {
			for _, p := range series.Floats {
				count(p.F)
			}
		}
	case promql.Scalar:
		count(v.V)
	default:
		return 0, errors.Join(r.Err, errors.New("the answer is no number"))
	}
	return n, r.Err
}

// checkNames compares the metrics of a running up with those that the dashboards show: what is served is shown.
func checkNames(t *testing.T, all []grafana.Dashboard, seen *promtest.Series) {
	t.Helper()
	var text strings.Builder
	for _, d := range all {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				text.WriteString(q.Expr + "\n")
			}
		}
	}
	for _, name := range seen.Names() {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, suffix)
		}
		if !strings.Contains(text.String(), name) {
			t.Errorf("up serves %s, and no dashboard shows it", name)
		}
	}
}
