package ec2

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"

	"github.com/muster-dev/muster/nodes"
)

// Where prices come from.
const (
	PricesTable = "table" // INSTANCE_TABLE, or the one that comes with Muster
	PricesAWS   = "aws"   // the Price List and the history of Spot prices, and the table for what they lack
)

// Pricing is what a Cloud needs of the AWS Price List; *pricing.Client has it.
type Pricing interface {
	GetProducts(context.Context, *pricing.GetProductsInput, ...func(*pricing.Options)) (*pricing.GetProductsOutput, error)
}

var _ nodes.Pricer = (*Cloud)(nil)

// pricingRegion returns the region whose Price List service is asked: it answers in three of them, each for all regions.
func pricingRegion(region string) string {
	switch continent, _, _ := strings.Cut(region, "-"); continent {
	case "eu", "il", "me", "af":
		return "eu-central-1"
	case "ap":
		return "ap-south-1"
	}
	return "us-east-1"
}

// largestAnyOf is how many characters the value of a filter may have.
const largestAnyOf = 1024

// OnDemandPrices reads the Price List: Linux, without licences, on shared hardware, not reserved.
func (c *Cloud) OnDemandPrices(ctx context.Context, names []string) (map[string]float64, error) {
	if c.api.Pricing == nil || c.api.Region == "" {
		return nil, errors.New("there is no client for the Price List")
	}
	out := map[string]float64{}
	for _, some := range anyOf(names) {
		if err := c.products(ctx, some, out); err != nil {
			return out, fmt.Errorf("reading the Price List: %w", explained(err))
		}
	}
	return out, nil
}

// anyOf puts names together to values of a filter.
func anyOf(names []string) []string {
	var out []string
	for _, name := range names {
		if n := len(out) - 1; n >= 0 && len(out[n])+1+len(name) <= largestAnyOf {
			out[n] += "," + name
		} else {
			out = append(out, name)
		}
	}
	return out
}

func (c *Cloud) products(ctx context.Context, names string, out map[string]float64) error {
	is := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Field: &field, Type: pricingtypes.FilterTypeEquals, Value: &value}
	}
	in := &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"), FormatVersion: aws.String("aws_v1"), MaxResults: aws.Int32(100),
		Filters: []pricingtypes.Filter{
			is("regionCode", c.api.Region), is("operatingSystem", "Linux"), is("preInstalledSw", "NA"), is("tenancy", "Shared"),
			is("capacitystatus", "Used"), is("marketoption", "OnDemand"),
			{Field: aws.String("instanceType"), Type: pricingtypes.FilterTypeAnyOf, Value: &names},
		},
	}
	for {
		reply, err := c.api.Pricing.GetProducts(ctx, in)
		if err != nil {
			return err
		}
		for _, text := range reply.PriceList {
			name, usd, err := productPrice(text)
			if err != nil {
				return err
			}
			if before, twice := out[name]; usd > 0 && (!twice || usd < before) {
				out[name] = usd
			}
		}
		next := aws.ToString(reply.NextToken)
		if next == "" {
			return nil
		}
		if next == aws.ToString(in.NextToken) {
			return &nodes.IncompleteError{What: "products", Err: errors.New("a page names itself as the next one")}
		}
		in.NextToken = &next
	}
}

// product is what is read of a product of the Price List.
type product struct {
	Product struct {
		Attributes struct {
			InstanceType string `json:"instanceType"`
		} `json:"attributes"`
	} `json:"product"`
	Terms struct {
		OnDemand map[string]struct {
			PriceDimensions map[string]struct {
				Unit         string            `json:"unit"`
				PricePerUnit map[string]string `json:"pricePerUnit"`
			} `json:"priceDimensions"`
		} `json:"OnDemand"`
	} `json:"terms"`
}

// productPrice returns a product's type and the lowest price of an hour of it that is not nothing; 0 if it has none in USD.
func productPrice(text string) (name string, usd float64, err error) {
	var p product
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return "", 0, fmt.Errorf("a product can't be read: %w", err)
	}
	for _, term := range p.Terms.OnDemand {
		for _, d := range term.PriceDimensions {
			text, inUSD := d.PricePerUnit["USD"]
			if d.Unit != "Hrs" || !inUSD {
				continue
			}
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return "", 0, fmt.Errorf("the price of %s is %q", p.Product.Attributes.InstanceType, text)
			}
			if v > 0 && (usd == 0 || v < usd) {
				usd = v
			}
		}
	}
	return p.Product.Attributes.InstanceType, usd, nil
}

// spotTypes is how many types one request names.
const spotTypes = 100

// SpotPrices reads the Spot prices that hold now, each zone's own.
func (c *Cloud) SpotPrices(ctx context.Context, names, zones []string) (map[string]map[string]float64, error) {
	newest := map[string]map[string]types.SpotPrice{}
	for some := range slices.Chunk(names, spotTypes) {
		if err := c.spotHistory(ctx, some, zones, newest); err != nil {
			return nil, fmt.Errorf("reading Spot prices: %w", explained(err))
		}
	}
	out := map[string]map[string]float64{}
	for zone, prices := range newest {
		out[zone] = map[string]float64{}
		for name, p := range prices {
			usd, err := strconv.ParseFloat(aws.ToString(p.SpotPrice), 64)
			if err != nil {
				return nil, fmt.Errorf("reading Spot prices: that of %s in %s is %q", name, zone, aws.ToString(p.SpotPrice))
			}
			out[zone][name] = usd
		}
	}
	return out, nil
}

func (c *Cloud) spotHistory(ctx context.Context, names, zones []string, newest map[string]map[string]types.SpotPrice) error {
	in := &ec2.DescribeSpotPriceHistoryInput{
		// What began before it and still holds is part of the answer.
		StartTime:           aws.Time(time.Now()),
		ProductDescriptions: []string{string(types.RIProductDescriptionLinuxUnix), string(types.RIProductDescriptionLinuxUnixAmazonVpc)},
		Filters:             []types.Filter{filter("availability-zone", zones...)},
		MaxResults:          aws.Int32(1000),
	}
	for _, name := range names {
		in.InstanceTypes = append(in.InstanceTypes, types.InstanceType(name))
	}
	for {
		reply, err := c.api.EC2.DescribeSpotPriceHistory(ctx, in)
		if err != nil {
			return err
		}
		for _, p := range reply.SpotPriceHistory {
			zone, name := aws.ToString(p.AvailabilityZone), string(p.InstanceType)
			if newest[zone] == nil {
				newest[zone] = map[string]types.SpotPrice{}
			}
			if before, known := newest[zone][name]; !known || aws.ToTime(before.Timestamp).Before(aws.ToTime(p.Timestamp)) {
				newest[zone][name] = p
			}
		}
		next := aws.ToString(reply.NextToken)
		if next == "" {
			return nil
		}
		if next == aws.ToString(in.NextToken) {
			return &nodes.IncompleteError{What: "Spot prices", Err: errors.New("a page names itself as the next one")}
		}
		in.NextToken = &next
	}
}

// prices tries to read the prices of the types of the settings.
func (k *checker) prices(subnets []nodes.Subnet) {
	if k.c.Prices != PricesAWS {
		return
	}
	names, spot := k.c.offered()
	onDemand, err := k.OnDemandPrices(k.ctx, names)
	k.add("pricing:GetProducts", err, grant("pricing:GetProducts")+", and let it reach api.pricing."+pricingRegion(k.api.Region)+".amazonaws.com, or set PRICES=table",
		"On-Demand prices of %d of %d types", len(onDemand), len(names))
	if !spot {
		return
	}
	zones := map[string]bool{}
	for _, s := range subnets {
		zones[s.Zone] = true
	}
	if len(zones) == 0 {
		return // a failed check says so already
	}
	byZone, err := k.SpotPrices(k.ctx, names, slices.Sorted(maps.Keys(zones)))
	n := 0
	for _, prices := range byZone {
		n += len(prices)
	}
	k.add("ec2:DescribeSpotPriceHistory", err, grant("ec2:DescribeSpotPriceHistory")+", or set PRICES=table", "%d Spot prices in %d zones", n, len(zones))
}

// offered returns the types of the settings, in any pool, and whether Spot is among their markets.
func (c Config) offered() (names []string, spot bool) {
	names, spot = slices.Clone(c.InstanceTypes), c.Spot
	if len(c.Pools) > 0 {
		names, spot = nil, false
	}
	for _, pool := range c.Pools {
		in := c.In(pool)
		names, spot = append(names, in.InstanceTypes...), spot || in.Spot
	}
	slices.Sort(names)
	return slices.Compact(names), spot
}
