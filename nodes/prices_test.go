package nodes_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/sim"
)

// pricer answers from maps, or fails, and counts how often it is asked.
type pricer struct {
	onDemand map[string]float64
	spot     map[string]map[string]float64
	err      error
	asked    map[nodes.Market]int
}

func (p *pricer) OnDemandPrices(context.Context, []string) (map[string]float64, error) {
	p.asked[nodes.OnDemand]++
	return p.onDemand, p.err
}

func (p *pricer) SpotPrices(context.Context, []string, []string) (map[string]map[string]float64, error) {
	p.asked[nodes.Spot]++
	return p.spot, p.err
}

func aPricer() *pricer {
	return &pricer{
		onDemand: map[string]float64{"m5.large": 0.115, "t3.large": 0.096},
		spot:     map[string]map[string]float64{"a": {"m5.large": 0.03, "t3.large": 0.04}, "b": {"m5.large": 0.05, "t3.large": 0.02}},
		asked:    map[nodes.Market]int{},
	}
}

func TestPricesAreRead(t *testing.T) {
	p := aPricer()
	s := newSet(t, "ab", func(c *nodes.Config) { c.Pricer = p })
	price := func(typ string, m nodes.Market, zone string) float64 {
		usd, _ := s.Record().Prices.Current(s.Clock().Now()).Of(typ, m, zone)
		return usd
	}

	s.ticks(t, 1)
	if got := price("m5.large", nodes.OnDemand, "a"); got != 0.115 {
		t.Errorf("On-Demand %v", got)
	}
	if a, b, mean := price("t3.large", nodes.Spot, "a"), price("t3.large", nodes.Spot, "b"), price("t3.large", nodes.Spot, ""); a != 0.04 || b != 0.02 || mean != 0.03 {
		t.Errorf("Spot %v in a, %v in b, mean %v", a, b, mean)
	}
	s.ticks(t, 29)
	if want := (map[nodes.Market]int{nodes.OnDemand: 1, nodes.Spot: 1}); !maps.Equal(p.asked, want) {
		t.Errorf("in half an hour asked %v, want %v", p.asked, want)
	}
	s.ticks(t, 12*60-20)
	if n := p.asked[nodes.Spot]; p.asked[nodes.OnDemand] != 2 || n < 22 || n > 25 {
		t.Errorf("in half a day asked %v", p.asked)
	}

	t.Run("others_are_asked_for_at_once", func(t *testing.T) {
		before := maps.Clone(p.asked)
		s.config.Policy.InstanceTypes = []string{"m5.large"}
		again(t, s)
		if p.asked[nodes.OnDemand] != before[nodes.OnDemand]+1 || p.asked[nodes.Spot] != before[nodes.Spot]+1 {
			t.Errorf("asked %v, before the change of types %v", p.asked, before)
		}
	})
	t.Run("they_go_when_the_setting_does", func(t *testing.T) {
		s.config.Pricer = nil
		again(t, s)
		if got := s.Record().Prices; got != nil {
			t.Errorf("the record still has %+v", got)
		}
	})
}

// again makes a tick of another process, by the configuration as it is now.
func again(t *testing.T, s *set) {
	t.Helper()
	var err error
	if s.Reconciler, err = nodes.New(s.config); err != nil {
		t.Fatal(err)
	}
	s.ticks(t, 1)
}

func TestPricesThatCannotBeRead(t *testing.T) {
	p := aPricer()
	p.err = errors.New("UnauthorizedOperation: allow pricing:GetProducts")
	s := newSet(t, "ab", func(c *nodes.Config) { c.Pricer = p })
	text := func() string { return s.Record().Prices.Text(s.Clock().Now()) }

	s.ticks(t, 5)
	if got := s.Record().Prices.Current(s.Clock().Now()); got != nil {
		t.Errorf("prices that were never read: %+v", got)
	}
	if want := "by the table, because reading On-Demand prices: UnauthorizedOperation: allow pricing:GetProducts"; !strings.Contains(text(), want) {
		t.Errorf("%q does not say %q", text(), want)
	}
	if p.asked[nodes.OnDemand] != 1 {
		t.Errorf("a failure is repeated at once: %v", p.asked)
	}
	failed := 0
	for e, err := range s.client.Read(t.Context(), nodes.Query{Kind: "prices.failed"}) {
		if err != nil || e.Message == "" {
			t.Fatal(e, err)
		}
		failed++
	}
	if failed != 2 {
		t.Errorf("%d events, want one of each market", failed)
	}

	t.Run("until_they_can", func(t *testing.T) {
		p.err = nil
		s.ticks(t, 10)
		if got := text(); !strings.HasPrefix(got, "On-Demand by AWS, read ") || !strings.Contains(got, "; Spot by AWS, read ") || strings.Contains(got, "because") {
			t.Errorf("the source is %q", got)
		}
	})
	t.Run("then_they_last_for_a_while", func(t *testing.T) {
		p.err = errors.New("RequestLimitExceeded")
		s.ticks(t, 60)
		if usd, _ := s.Record().Prices.Current(s.Clock().Now()).Of("t3.large", nodes.Spot, "b"); usd != 0.02 {
			t.Errorf("after an hour of failures %v", usd)
		}
		s.Advance(7 * time.Hour)
		current := s.Record().Prices.Current(s.Clock().Now())
		if _, known := current.Of("t3.large", nodes.Spot, "b"); known {
			t.Error("a Spot price of eight hours ago is decided by")
		}
		if _, known := current.Of("t3.large", nodes.OnDemand, "b"); !known {
			t.Error("an On-Demand price of eight hours ago is not")
		}
	})
}

// A decision is made again from what was logged alone: the prices that it went by are in it.
func TestDecisionsGoByThePricesOfTheRecord(t *testing.T) {
	table := fit.Shipped()
	d := nodes.Decider{Policy: quick(), Fitter: fit.New(fit.Config{})}
	d.Policy.MinWorkers, d.Policy.Sizing, d.Policy.Spot, d.Policy.InstanceTypes = 0, nodes.SizingFit, false, []string{"m5.large", "m6i.large"}
	f := fit.New(fit.Config{Catalog: table, Zones: []string{"a"}})
	d.Sizer, d.Appraiser = f, f
	now := time.Unix(1730001600, 0)
	o := nodes.Observation{FleetKnown: true, Zones: []string{"a"}, Pending: []nodes.Pod{{Name: "p", Count: 1, Requests: nodes.Resources{MilliCPU: 1000, Memory: 1 << 30}}}}
	o.Readings.Pending, o.Readings.CPU = nodes.Reading{Known: true, Value: 1}, nodes.Reading{Known: true, Value: 0.5}
	o.Readings.PendingMin, o.Readings.CPUMin = nodes.Reading{Known: true, Value: 1}, nodes.Reading{Known: true}
	o.Readings.PendingMax, o.Readings.CPUMax = nodes.Reading{Known: true, Value: 1}, nodes.Reading{Known: true, Value: 1}
	r := nodes.NewRecord("")
	r.PendingSinceEpoch = nodes.Num(now.Add(-time.Hour).Unix())
	first := func(r nodes.Record) string {
		dec := d.Decide(o, r, now)
		if len(dec.Wanted) == 0 {
			t.Fatalf("nothing is wanted: %+v", dec)
		}
		return dec.Wanted[0].Types[0]
	}
	for _, cheap := range []string{"m5.large", "m6i.large"} {
		usd := map[string]float64{"m5.large": 0.2, "m6i.large": 0.2}
		usd[cheap] = 0.1
		r.Prices = &nodes.Prices{OnDemand: &nodes.PriceList{USD: usd, Epoch: now.Unix()}}
		if got := first(r); got != cheap {
			t.Errorf("wanted %s, although %s is the cheapest", got, cheap)
		}
	}
	byTable := "m5.large"
	if table["m6i.large"].OnDemand < table["m5.large"].OnDemand {
		byTable = "m6i.large"
	}
	r.Prices = &nodes.Prices{OnDemand: &nodes.PriceList{USD: map[string]float64{"m5.large": 9, "m6i.large": 8}, Epoch: now.Add(-8 * 24 * time.Hour).Unix()}}
	stale := first(r)
	r.Prices = nil
	if got := first(r); stale != got || table[byTable].OnDemand < table[got].OnDemand {
		t.Errorf("by prices that are too old %s, by the table %s", stale, got)
	}
}

// Spot is bought of the type that is cheapest in the zone; one that was refused is passed over.
func TestSpotIsTriedInTheOrderOfItsPriceInTheZone(t *testing.T) {
	launched := func(change func(*set)) []string {
		f := fit.New(fit.Config{Catalog: fit.Shipped(), Zones: []string{"a", "b"}})
		s := newSet(t, "ab", func(c *nodes.Config) {
			c.Policy.Sizing, c.Policy.InstanceTypes = nodes.SizingFit, []string{"m5.large", "t3.large"}
			c.Sizer, c.Screener, c.Fitter, c.Pricer = f, f, f, aPricer()
		})
		change(s)
		s.ticks(t, 1) // reads them
		s.AddPods(6, sim.PodSpec{Name: "p", MilliCPU: 1500})
		s.ticks(t, 4)
		var out []string
		for _, e := range s.Ledger() {
			if e.Kind == sim.Launched {
				out = append(out, e.Zone+" "+e.Request.Offering.Type+" "+string(e.Request.Offering.Market))
			}
		}
		return out
	}
	got := launched(func(*set) {})
	if !slices.Contains(got, "a m5.large spot") || !slices.Contains(got, "b t3.large spot") || slices.Contains(got, "a t3.large spot") || slices.Contains(got, "b m5.large spot") {
		t.Errorf("launched %v; m5 is cheaper in a, t3 in b", got)
	}
	got = launched(func(s *set) { s.AddShortage(sim.Shortage{Zone: "a", Type: "m5.large", Market: nodes.Spot}) })
	if !slices.Contains(got, "a t3.large spot") || !slices.Contains(got, "b t3.large spot") {
		t.Errorf("without m5 in a launched %v", got)
	}
}
