package awsapi

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Price returns what an hour of an instance type costs, in USD, On-Demand in the region or Spot in a zone; false if it is not sold.
type Price func(instanceType string, m nodes.Market, zone string) (usd float64, sold bool)

// none is the price of a region that sells nothing.
func none(string, nodes.Market, string) (float64, bool) { return 0, false }

type describeSpotPriceHistoryResponse struct {
	XMLName   xml.Name    `xml:"http://ec2.amazonaws.com/doc/2016-11-15/ DescribeSpotPriceHistoryResponse"`
	RequestID string      `xml:"requestId"`
	Prices    []wirePrice `xml:"spotPriceHistorySet>item"`
	NextToken string      `xml:"nextToken"`
}

type wirePrice struct {
	Type    string `xml:"instanceType"`
	Product string `xml:"productDescription"`
	Price   string `xml:"spotPrice"`
	At      string `xml:"timestamp"`
	Zone    string `xml:"availabilityZone"`
}

// The age of the two prices of a type and zone that a history holds: the one that holds, and the one before it, which is twice as high.
const (
	newPrice = time.Hour
	oldPrice = 5 * time.Hour
)

// describeSpotPriceHistory lists what holds at the start and what comes after it, the newest first, as EC2 does. Without a start it lists
// all that there is.
func (c *compute) describeSpotPriceHistory(r *request) (any, error) {
	now := c.region.Clock().Now()
	zones, err := c.client.Subnets(r.ctx)
	if err != nil {
		return nil, err
	}
	var all []wirePrice
	add := func(name, zone string, age time.Duration, usd float64) {
		p := wirePrice{name, "Linux/UNIX", strconv.FormatFloat(usd, 'f', 6, 64), now.Add(-age).UTC().Format(time.RFC3339), zone}
		all = append(all, p)
	}
	for _, z := range zones {
		passes := r.filters(func(name string) []string {
			if name == "availability-zone" {
				return []string{z.Zone}
			}
			return nil
		})
		for _, name := range r.list("InstanceType") {
			usd, sold := c.options.Price(name, nodes.Spot, z.Zone)
			if !passes || !sold || !slices.Contains(r.list("ProductDescription"), "Linux/UNIX") {
				continue
			}
			add(name, z.Zone, newPrice, usd)
			if r.get("StartTime") == "" {
				add(name, z.Zone, oldPrice, 2*usd)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b wirePrice) int { return strings.Compare(b.At, a.At) })
	bounds, next, err := r.page(c.options.PageSize, len(all))
	if err != nil {
		return nil, err
	}
	return describeSpotPriceHistoryResponse{RequestID: "simulated", Prices: all[bounds[0]:bounds[1]], NextToken: next}, nil
}

// getProductsRequest is what is read of a request for products.
type getProductsRequest struct {
	ServiceCode string
	Filters     []struct{ Field, Type, Value string }
	MaxResults  int
	NextToken   string
}

// values returns what the filters accept of a field, nil if they accept all.
func (g getProductsRequest) values(field string) []string {
	for _, f := range g.Filters {
		switch {
		case f.Field != field:
		case f.Type == "ANY_OF":
			return strings.Split(f.Value, ",")
		default:
			return []string{f.Value}
		}
	}
	return nil
}

// largestValue is how long the value of a filter may be.
const largestValue = 1024

// getProducts lists the products of the Price List that a request's instance types are sold by: the plain one, and one with a licence,
// which costs twice as much and which the filters have to leave out.
func (c *compute) getProducts(r *request) (any, error) {
	var g getProductsRequest
	if err := json.Unmarshal(r.body, &g); err != nil || g.ServiceCode != "AmazonEC2" {
		return nil, refused("InvalidParameterException", "The request is not for AmazonEC2")
	}
	var all []string
	for _, f := range g.Filters {
		if len(f.Value) > largestValue {
			return nil, refused("InvalidParameterException", "The value of %s is too long", f.Field)
		}
	}
	software := g.values("preInstalledSw")
	for _, name := range g.values("instanceType") {
		usd, sold := c.options.Price(name, nodes.OnDemand, "")
		if !sold {
			continue
		}
		for i, sw := range []string{"NA", "SQL Std"} {
			if software == nil || slices.Contains(software, sw) {
				all = append(all, productText(name, sw, usd*float64(1+i)))
			}
		}
	}
	from := 0
	if g.NextToken != "" {
		var err error
		if from, err = strconv.Atoi(g.NextToken); err != nil || from < 0 || from > len(all) {
			return nil, refused("InvalidNextTokenException", "The token '%s' is not valid", g.NextToken)
		}
	}
	size := c.options.PageSize
	if g.MaxResults > 0 {
		size = min(size, g.MaxResults)
	}
	to := min(from+size, len(all))
	out := map[string]any{"FormatVersion": "aws_v1", "PriceList": all[from:to]}
	if to < len(all) {
		out["NextToken"] = strconv.Itoa(to)
	}
	return out, nil
}

// productText writes a product as the Price List does, with a reservation that costs nothing an hour beside the price of an hour.
func productText(name, software string, usd float64) string {
	dimension := func(unit string, usd float64) map[string]any {
		return map[string]any{"unit": unit, "pricePerUnit": map[string]string{"USD": fmt.Sprintf("%.10f", usd)}}
	}
	text, _ := json.Marshal(map[string]any{ // plain maps
		"product":     map[string]any{"productFamily": "Compute Instance", "attributes": map[string]string{"instanceType": name, "preInstalledSw": software}},
		"serviceCode": "AmazonEC2",
		"terms": map[string]any{
			"OnDemand": map[string]any{"SKU.JRTCKXETXF": map[string]any{"priceDimensions": map[string]any{"SKU.JRTCKXETXF.6YS6EN2CT7": dimension("Hrs", usd)}}},
			"Reserved": map[string]any{"SKU.HU7G6KETJZ": map[string]any{"priceDimensions": map[string]any{"SKU.HU7G6KETJZ.6YS6EN2CT7": dimension("Hrs", 0)}}},
		},
	})
	return string(text)
}
