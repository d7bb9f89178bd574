// Command gentypes writes the table of instance types that package fit ships, from the recorded price, Spot advisor and ENI files:
//
//	go run ./nodes/fit/gentypes -data DIR >nodes/fit/types.csv
//
// DIR is the folder with the files' README, usually $MUSTER_DATA/aws.
package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// gpus are the whole GPUs by instance type, of https://aws.amazon.com/ec2/instance-types/ (accelerated computing). The recorded
// files don't tell them. AMD's and fractional ones are left out: they are other resources than nvidia.com/gpu.
var gpus = map[string]int{
	"g4dn.12xlarge": 4, "g4dn.metal": 8, "g5.12xlarge": 4, "g5.24xlarge": 4, "g5.48xlarge": 8, "g5g.16xlarge": 2, "g5g.metal": 2,
	"g6.12xlarge": 4, "g6.24xlarge": 4, "g6.48xlarge": 8, "g6e.12xlarge": 4, "g6e.24xlarge": 4, "g6e.48xlarge": 8,
	"p2.xlarge": 1, "p2.8xlarge": 8, "p2.16xlarge": 16, "p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "p3dn.24xlarge": 8,
	"p4d.24xlarge": 8, "p4de.24xlarge": 8, "p5.4xlarge": 1, "p5.48xlarge": 8, "p5en.48xlarge": 8,
	"gr6.4xlarge": 1, "gr6.8xlarge": 1,
	"g4dn.xlarge": 1, "g4dn.2xlarge": 1, "g4dn.4xlarge": 1, "g4dn.8xlarge": 1, "g4dn.16xlarge": 1,
	"g5.xlarge": 1, "g5.2xlarge": 1, "g5.4xlarge": 1, "g5.8xlarge": 1, "g5.16xlarge": 1,
	"g5g.xlarge": 1, "g5g.2xlarge": 1, "g5g.4xlarge": 1, "g5g.8xlarge": 1,
	"g6.xlarge": 1, "g6.2xlarge": 1, "g6.4xlarge": 1, "g6.8xlarge": 1, "g6.16xlarge": 1,
	"g6e.xlarge": 1, "g6e.2xlarge": 1, "g6e.4xlarge": 1, "g6e.8xlarge": 1, "g6e.16xlarge": 1,
}

const head = `# On-demand instance types of EC2 with size, price, Spot savings and pods by the VPC CNI.
# usd_per_hour: us-east-1, Linux, from karpenter-provider-aws v1.14.1 zz_generated.pricing_aws.go, generated 2026-07-06 (Apache-2.0).
# vpc_cni_pods: ENI*(IPv4-1)+2, same module, zz_generated.vpclimits.go, generated 2026-05-18 (Apache-2.0).
# vcpu, memory_mib, spot_savings_pct, interruption: us-east-1 or, for types not sold there as Spot, another region,
# from alexei-led/spotinfo internal/spot/data/spot-advisor-data.json of 2025-06-28 (Apache-2.0; AWS Spot Advisor data).
# gpus: whole NVIDIA GPUs, of AWS's instance type pages. Written by gentypes; edit a copy and set INSTANCE_TABLE to use your own.
`

func main() {
	data := flag.String("data", "", "folder with ec2_ondemand_price.csv, spot_advisor_linux_subset.csv and ec2_eni_limits.csv")
	flag.Parse()
	if err := run(*data); err != nil {
		fmt.Fprintln(os.Stderr, "gentypes:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	prices, err := read(filepath.Join(dir, "ec2_ondemand_price.csv"))
	if err != nil {
		return err
	}
	advisor, err := read(filepath.Join(dir, "spot_advisor_linux_subset.csv"))
	if err != nil {
		return err
	}
	limits, err := read(filepath.Join(dir, "ec2_eni_limits.csv"))
	if err != nil {
		return err
	}
	spot := map[string]map[string]string{}
	for _, r := range advisor {
		if name := r["instance_type"]; spot[name] == nil || r["region"] == "us-east-1" {
			spot[name] = r
		}
	}
	pods := map[string]string{}
	for _, r := range limits {
		pods[r["instance_type"]] = r["max_pods_vpc_cni"]
	}
	slices.SortFunc(prices, func(a, b map[string]string) int {
		if a["instance_type"] < b["instance_type"] {
			return -1
		}
		return 1
	})
	fmt.Print(head)
	fmt.Println("type,vcpu,memory_mib,usd_per_hour,spot_savings_pct,interruption,vpc_cni_pods,gpus")
	for _, r := range prices {
		name := r["instance_type"]
		s := spot[name]
		if s == nil {
			continue // its size is not known
		}
		gib, err := strconv.ParseFloat(s["ram_gb"], 64)
		if err != nil {
			return fmt.Errorf("%s: memory %q: %w", name, s["ram_gb"], err)
		}
		usd, err := strconv.ParseFloat(r["usd_per_hour"], 64)
		if err != nil {
			return fmt.Errorf("%s: price %q: %w", name, r["usd_per_hour"], err)
		}
		count := ""
		if n := gpus[name]; n > 0 {
			count = strconv.Itoa(n)
		}
		fmt.Printf("%s,%s,%d,%s,%s,%s,%s,%s\n", name, s["vcpu"], int64(gib*1024), strconv.FormatFloat(usd, 'f', -1, 64), s["savings_pct"], s["interruption_range"], pods[name], count)
	}
	return nil
}

// read returns the rows of a CSV file with a head line.
func read(path string) ([]map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	all, err := csv.NewReader(f).ReadAll()
	if err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s: %d lines, %w", path, len(all), err)
	}
	out := make([]map[string]string, 0, len(all)-1)
	for _, line := range all[1:] {
		row := map[string]string{}
		for i, name := range all[0] {
			row[name] = line[i]
		}
		out = append(out, row)
	}
	return out, nil
}
