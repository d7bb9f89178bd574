package fit

import "github.com/muster-dev/muster/nodes"

var _ nodes.PriceTaker = (*Fit)(nil)

// WithPrices returns a Fit that goes by the cloud's prices, and by the table for what they lack.
func (f *Fit) WithPrices(p *nodes.Prices) nodes.Priced { return &Fit{c: f.c, prices: p} }

// Price returns what an hour of an instance type costs, in USD. The table knows no zones.
func (f *Fit) Price(instanceType string, m nodes.Market, zone string) (float64, bool) {
	t, ok := f.c.Catalog[instanceType]
	usd := f.priceOf(t, m, zone)
	return usd, ok && usd > 0
}

func (f *Fit) priceOf(t InstanceType, m nodes.Market, zone string) float64 {
	if usd, known := f.prices.Of(t.Name, m, zone); known {
		return usd
	}
	return t.Price(m)
}
