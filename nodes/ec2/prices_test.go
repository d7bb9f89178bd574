package ec2_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// sold is what the types of a region cost: Spot is dearer in zone b.
func sold(prices map[string]float64) awsapi.Price {
	return func(name string, m nodes.Market, zone string) (float64, bool) {
		usd, ok := prices[name]
		switch {
		case m == nodes.OnDemand:
			return usd, ok
		case zone == "b":
			return usd / 2, ok
		}
		return usd / 4, ok
	}
}

func selling(pageSize int, prices map[string]float64) func(*setup) {
	return func(s *setup) {
		s.api.Price, s.api.PageSize = sold(prices), pageSize
		s.config.Prices = ec2.PricesAWS
		s.sim.Zones = []string{"a", "b", "c"}
	}
}

func TestPrices(t *testing.T) {
	prices := map[string]float64{"m5.large": 0.115, "t3.large": 0.096, "m5.xlarge": 0.23, "odd.large": 0.5}
	r := open(t, selling(5, prices))
	names := []string{"m5.large", "t3.large", "m5.xlarge", "none.large"}

	t.Run("on-demand_without_licence", func(t *testing.T) {
		got, err := r.cloud.OnDemandPrices(t.Context(), names)
		want := map[string]float64{"m5.large": 0.115, "t3.large": 0.096, "m5.xlarge": 0.23}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	})
	t.Run("spot_by_zone_over_all_pages", func(t *testing.T) {
		before := r.count("DescribeSpotPriceHistory")
		got, err := r.cloud.SpotPrices(t.Context(), names, []string{"a", "b"})
		if err != nil || len(got) != 2 || !maps.Equal(got["b"], map[string]float64{"m5.large": 0.0575, "t3.large": 0.048, "m5.xlarge": 0.115}) || len(got["a"]) != 3 {
			t.Errorf("got %v, %v", got, err)
		}
		if n := r.count("DescribeSpotPriceHistory") - before; n != 2 {
			t.Errorf("six prices in pages of five took %d requests", n)
		}
	})
	t.Run("more_types_than_one_filter_holds", func(t *testing.T) {
		many := map[string]float64{}
		var names []string
		for i := range 250 {
			name := fmt.Sprintf("m%03d.large", i)
			many[name], names = float64(i+1), append(names, name)
		}
		r := open(t, selling(1000, many))
		got, err := r.cloud.OnDemandPrices(t.Context(), names)
		if err != nil || !maps.Equal(got, many) {
			t.Errorf("got %d prices, %v", len(got), err)
		}
		spot, err := r.cloud.SpotPrices(t.Context(), names, []string{"b"})
		if err != nil || len(spot["b"]) != len(many) {
			t.Errorf("got %d Spot prices, %v", len(spot["b"]), err)
		}
	})
}

func TestPricesThatCannotBeRead(t *testing.T) {
	names := []string{"m5.large"}
	both := func(r *region) (onDemand, spot error) {
		_, onDemand = r.cloud.OnDemandPrices(t.Context(), names)
		_, spot = r.cloud.SpotPrices(t.Context(), names, []string{"a"})
		return onDemand, spot
	}
	for name, c := range map[string]struct {
		spoil func(*region)
		want  [2]string // in the errors
	}{
		"denied": {func(r *region) { r.api.Deny("pricing:GetProducts", "ec2:DescribeSpotPriceHistory") }, [2]string{"AccessDeniedException", "UnauthorizedOperation"}},
		"throttled": {func(r *region) {
			r.api.Fault(awsapi.Fault{Action: "GetProducts", Code: "ThrottlingException", Times: 100})
			r.api.Fault(awsapi.Fault{Action: "DescribeSpotPriceHistory", Times: 100})
		}, [2]string{"ThrottlingException", "RequestLimitExceeded"}},
		"not a product": {func(r *region) {
			r.api.Fault(awsapi.Fault{Action: "GetProducts", Garbage: true, Body: `{"PriceList":["<html>"]}`})
			r.api.Fault(awsapi.Fault{Action: "DescribeSpotPriceHistory", Garbage: true, Body: "<html/>"})
		}, [2]string{"a product can't be read", "not EC2's"}},
		"not a number": {func(r *region) {
			r.api.Fault(awsapi.Fault{Action: "GetProducts", Garbage: true, Body: `{"PriceList":["{\"product\":{\"attributes\":{\"instanceType\":\"m5.large\"}},\"terms\":{\"OnDemand\":{\"x\":{\"priceDimensions\":{\"y\":{\"unit\":\"Hrs\",\"pricePerUnit\":{\"USD\":\"much\"}}}}}}}"]}`})
			r.api.Fault(awsapi.Fault{Action: "DescribeSpotPriceHistory", Garbage: true, Body: `<DescribeSpotPriceHistoryResponse><spotPriceHistorySet><item><instanceType>m5.large</instanceType><spotPrice>much</spotPrice><availabilityZone>a</availabilityZone></item></spotPriceHistorySet></DescribeSpotPriceHistoryResponse>`})
		}, [2]string{`the price of m5.large is "much"`, `m5.large in a is "much"`}},
		"a page that names itself": {func(r *region) {
			r.api.Fault(awsapi.Fault{Action: "GetProducts", Garbage: true, Times: 2, Body: `{"PriceList":[],"NextToken":"same"}`})
			r.api.Fault(awsapi.Fault{Action: "DescribeSpotPriceHistory", Garbage: true, Times: 2, Body: `<DescribeSpotPriceHistoryResponse><nextToken>same</nextToken></DescribeSpotPriceHistoryResponse>`})
		}, [2]string{"names itself", "names itself"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, selling(0, map[string]float64{"m5.large": 0.115}))
			c.spoil(r)
			onDemand, spot := both(r)
			for i, err := range []error{onDemand, spot} {
				if err == nil || !strings.Contains(err.Error(), c.want[i]) {
					t.Errorf("the error is %v, want %q in it", err, c.want[i])
				}
			}
		})
	}
}

func TestCheckOfPrices(t *testing.T) {
	find := func(r *region, name string) (nodes.Check, bool) {
		for _, c := range r.cloud.Check(t.Context()) {
			if c.Name == name {
				return c, true
			}
		}
		return nodes.Check{}, false
	}
	const onDemand, spot = "pricing:GetProducts", "ec2:DescribeSpotPriceHistory"
	r := open(t, selling(0, map[string]float64{"m5.large": 0.115, "t3.large": 0.096}))
	for name, want := range map[string]string{onDemand: "On-Demand prices of 2 of 2 types", spot: "6 Spot prices in 3 zones"} {
		if c, there := find(r, name); !there || !c.OK || c.Detail != want {
			t.Errorf("%s: %+v", name, c)
		}
	}
	r.api.Deny(onDemand, spot)
	for _, name := range []string{onDemand, spot} {
		if c, _ := find(r, name); c.OK || !strings.Contains(c.Fix, "allow "+name) || !strings.Contains(c.Fix, "PRICES=table") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	r = open(t)
	if c, there := find(r, onDemand); there {
		t.Errorf("with PRICES=table there is %+v", c)
	}
}
