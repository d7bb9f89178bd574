package nodes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Pricer asks the cloud what instances cost now. A type or zone that it sells nothing in is absent from the answer.
type Pricer interface {
	// OnDemandPrices returns what an hour of each type costs in the region, in USD.
	OnDemandPrices(ctx context.Context, types []string) (map[string]float64, error)
	// SpotPrices returns the same of Spot, by the zone and then the type.
	SpotPrices(ctx context.Context, types, zones []string) (map[string]map[string]float64, error)
}

// PriceTaker is a Sizer and Appraiser with a table of prices, in place of which it can take others.
type PriceTaker interface {
	// WithPrices returns one that goes by these prices, and by its table for what they lack. It alters nothing that it is given.
	WithPrices(p *Prices) Priced
}

// Priced is what decides by prices.
type Priced interface {
	Sizer
	Appraiser
}

// How old the cloud's prices become. A Spot price changes gradually, within hours; an On-Demand price a few times a year.
const (
	spotEvery     = 30 * time.Minute
	onDemandEvery = 12 * time.Hour
	priceRetry    = 10 * time.Minute // after a failure
	spotLasts     = 6 * time.Hour
	onDemandLasts = 7 * 24 * time.Hour
)

// Prices are the cloud's prices as they were last read. They are kept in the record: a function that has just been started decides by
// the prices that the one before it has read, and so does a replay of a recorded decision. A nil Prices knows none.
type Prices struct {
	OnDemand *PriceList `json:"onDemand,omitempty"`
	Spot     *PriceList `json:"spot,omitempty"`
}

// PriceList is the prices of one market.
type PriceList struct {
	// USD is what an hour costs, by type, or of Spot by ZONE/TYPE.
	USD        map[string]float64 `json:"usd,omitempty"`
	Epoch      int64              `json:"epoch,omitempty"`   // when they were read; 0: never
	For        string             `json:"for,omitempty"`     // fingerprint of the types that were asked for
	TriedEpoch int64              `json:"triedEpoch"`        // when they were last asked for
	Failure    string             `json:"failure,omitempty"` // of the last try; "": it succeeded
}

// Of returns what an hour of a type costs in a market, in USD. Without a zone a Spot price is the mean of the zones that have one: which
// of them a node will be in, the balance of the zones decides.
func (p *Prices) Of(instanceType string, m Market, zone string) (usd float64, known bool) {
	switch {
	case p == nil:
		return 0, false
	case m == OnDemand:
		return p.OnDemand.at(instanceType)
	case zone != "":
		return p.Spot.at(spotKey(zone, instanceType))
	}
	return p.Spot.mean(instanceType)
}

func spotKey(zone, instanceType string) string { return zone + "/" + instanceType }

func (l *PriceList) at(key string) (float64, bool) {
	if l == nil {
		return 0, false
	}
	usd := l.USD[key]
	return usd, usd > 0
}

// mean adds in the order of the names: a sum of floating-point numbers depends on it, and a replay must come to the same.
func (l *PriceList) mean(instanceType string) (float64, bool) {
	if l == nil {
		return 0, false
	}
	sum, n := 0.0, 0
	for _, key := range slices.Sorted(maps.Keys(l.USD)) {
		if strings.HasSuffix(key, "/"+instanceType) {
			sum, n = sum+l.USD[key], n+1
		}
	}
	return sum / float64(max(n, 1)), n > 0
}

// Current returns the prices without those that are too old to decide by; nil if none are left.
func (p *Prices) Current(now time.Time) *Prices {
	if p == nil {
		return nil
	}
	out := Prices{OnDemand: p.OnDemand.current(now, onDemandLasts), Spot: p.Spot.current(now, spotLasts)}
	if out == (Prices{}) {
		return nil
	}
	return &out
}

func (l *PriceList) current(now time.Time, lasts time.Duration) *PriceList {
	if l == nil || len(l.USD) == 0 || now.Sub(time.Unix(l.Epoch, 0)) >= lasts {
		return nil
	}
	return l
}

// due reports whether a list is to be read: it is old, others are asked for than when it was read, or the last try is over for a while.
func (l *PriceList) due(now time.Time, every time.Duration, asked string) bool {
	switch {
	case l == nil:
		return true
	case l.Failure != "":
		return now.Sub(time.Unix(l.TriedEpoch, 0)) >= priceRetry
	}
	return l.For != asked || now.Sub(time.Unix(l.Epoch, 0)) >= every
}

// Text says where the prices of each market come from, for people.
func (p *Prices) Text(now time.Time) string {
	if p == nil {
		return "by the table"
	}
	return "On-Demand " + p.OnDemand.text(now, onDemandLasts) + "; Spot " + p.Spot.text(now, spotLasts)
}

func (l *PriceList) text(now time.Time, lasts time.Duration) string {
	if l == nil {
		return "by the table"
	}
	source := "by the table"
	if l.current(now, lasts) != nil {
		source = fmt.Sprintf("by AWS, read %s ago (%d)", text(now.Sub(time.Unix(l.Epoch, 0)).Truncate(time.Second)), len(l.USD))
	}
	if l.Failure != "" {
		source += ", because " + l.Failure
	} else if len(l.USD) == 0 {
		source += ", because AWS named no price"
	}
	return source
}

// cheapestFirst returns types in the order of their Spot price in a zone. Those that have none there come last, in their order.
func (p *Prices) cheapestFirst(types []string, zone string) []string {
	if p == nil || p.Spot == nil {
		return types
	}
	price := func(name string) float64 {
		if usd, known := p.Of(name, Spot, zone); known {
			return usd
		}
		return math.Inf(1)
	}
	types = slices.Clone(types)
	slices.SortStableFunc(types, func(a, b string) int { return cmp.Compare(price(a), price(b)) })
	return types
}

// clone returns a copy that shares no map.
func (p *Prices) clone() *Prices {
	if p == nil {
		return nil
	}
	return &Prices{OnDemand: p.OnDemand.clone(), Spot: p.Spot.clone()}
}

func (l *PriceList) clone() *PriceList {
	if l == nil {
		return nil
	}
	out := *l
	out.USD = maps.Clone(l.USD)
	return &out
}

// NotePrices writes what was read of the cloud's prices; nil: they are not read any more.
type NotePrices struct {
	Fence  int64
	Prices *Prices
}

// Name returns notePrices.
func (NotePrices) Name() string { return "notePrices" }

// Apply replaces the prices.
func (t NotePrices) Apply(r Record) (Record, error) {
	if err := fenced(t, r, t.Fence); err != nil {
		return r, err
	}
	r = r.Clone()
	r.Prices = t.Prices.clone()
	return r, nil
}

// priced returns a decider that goes by the record's prices, if it has some that are not too old.
func (d Decider) priced(r Record, now time.Time) Decider {
	p := r.Prices.Current(now)
	if p == nil {
		return d
	}
	if s, ok := d.Sizer.(PriceTaker); ok {
		d.Sizer = s.WithPrices(p)
	}
	if a, ok := d.Appraiser.(PriceTaker); ok {
		d.Appraiser = a.WithPrices(p)
	}
	return d
}
