package nodes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// priceReader keeps the record's prices up to date.
//
// It is the last step of a tick. What a tick decides and launches never waits for a price: the next one goes by what this one has read,
// and the very first by the table. An attempt is written down even if it failed, so that no tick repeats it at once and everyone can see
// why the table is used.
type priceReader struct {
	*run
	surveyor surveyor
}

// do reads the lists that are due.
func (p priceReader) do(ctx context.Context) error {
	known := p.state.record.Prices
	if p.config.Pricer == nil {
		if known == nil {
			return nil
		}
		return p.state.apply(ctx, NotePrices{Fence: p.state.fence}) // they were read under an earlier setting
	}
	if p.budget.spent(ctx) {
		return nil
	}

	next := known.clone()
	if next == nil {
		next = &Prices{}
	}
	types := p.config.Policy.offeredTypes()
	asked := digest(types)
	onDemand := next.OnDemand.due(p.now(), onDemandEvery, asked)
	if onDemand {
		usd, err := p.readOnDemand(ctx, types)
		next.OnDemand = p.took(ctx, next.OnDemand, OnDemand, asked, usd, err)
	}
	spot := p.config.Policy.offersSpot() && next.Spot.due(p.now(), spotEvery, asked)
	if spot {
		usd, err := p.readSpot(ctx, types)
		next.Spot = p.took(ctx, next.Spot, Spot, asked, usd, err)
	}
	if !onDemand && !spot {
		return nil
	}
	return p.state.apply(ctx, NotePrices{Fence: p.state.fence, Prices: next})
}

func (p priceReader) readOnDemand(ctx context.Context, types []string) (usd map[string]float64, err error) {
	err = p.calls.do(ctx, "reading On-Demand prices", func(ctx context.Context) (err error) {
		usd, err = p.config.Pricer.OnDemandPrices(ctx, types)
		return err
	})
	return usd, err
}

func (p priceReader) readSpot(ctx context.Context, types []string) (map[string]float64, error) {
	subnets, err := p.surveyor.subnets(ctx)
	if err != nil {
		return nil, err
	}
	var byZone map[string]map[string]float64
	err = p.calls.do(ctx, "reading Spot prices", func(ctx context.Context) (err error) {
		byZone, err = p.config.Pricer.SpotPrices(ctx, types, zonesOf(subnets))
		return err
	})
	usd := map[string]float64{}
	for zone, prices := range byZone {
		for name, price := range prices {
			usd[spotKey(zone, name)] = price
		}
	}
	return usd, err
}

// took returns the list after an attempt. One that failed keeps what was known before.
func (p priceReader) took(ctx context.Context, known *PriceList, m Market, asked string, usd map[string]float64, err error) *PriceList {
	now := p.now().Unix()
	if err != nil {
		next := known.clone()
		if next == nil {
			next = &PriceList{}
		}
		next.TriedEpoch, next.Failure = now, clipped(redact(err.Error()))
		p.log.append(ctx, Event{Kind: "prices.failed", Message: fmt.Sprintf("%s prices: %s", m, next.Failure)})
		return next
	}
	p.log.append(ctx, Event{Kind: "prices.read", Message: fmt.Sprintf("%d %s prices", len(usd), m)})
	if len(usd) == 0 {
		usd = nil // as it is when it is read back
	}
	return &PriceList{USD: usd, Epoch: now, TriedEpoch: now, For: asked}
}

// mostFailure is how long a failure's text becomes: it is in every copy of the record.
const mostFailure = 300

func clipped(s string) string {
	if len(s) <= mostFailure {
		return s
	}
	return strings.ToValidUTF8(s[:mostFailure], "") + "..."
}

// digest identifies a list of names.
func digest(names []string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, ",")))
	return hex.EncodeToString(sum[:8])
}

// zonesOf lists the zones of subnets, each once.
func zonesOf(subnets []Subnet) []string {
	var out []string
	for _, s := range subnets {
		out = append(out, s.Zone)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// offeredTypes lists the types that may be launched, in any pool, each once.
func (p Policy) offeredTypes() []string {
	var out []string
	if len(p.Pools) == 0 {
		out = slices.Clone(p.InstanceTypes)
	}
	for _, name := range p.PoolNames() {
		out = append(out, p.In(name).InstanceTypes...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// offersSpot reports whether Spot may be launched, in any pool.
func (p Policy) offersSpot() bool {
	if len(p.Pools) == 0 {
		return p.Spot
	}
	return slices.ContainsFunc(p.PoolNames(), func(name string) bool { return p.In(name).Spot })
}
