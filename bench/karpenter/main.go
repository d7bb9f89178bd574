// Command karpenter packs the same pods onto the same instance types with Muster's package fit and with Karpenter's scheduler, and prints
// how many nodes each asks for, what they cost an hour, and how many pods each places in a second.
//
//	go run . [--pods 1000,5000,30000] [--runs 3] [--karpenter-pods 5000] [--trace FILE] [--json FILE]
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// row is one contender on one load.
type row struct {
	Load     string  `json:"load"`
	Pods     int     `json:"pods"`
	Packer   string  `json:"packer"`
	Nodes    int     `json:"nodes"`
	Cost     float64 `json:"usdPerHour"`
	Unplaced int     `json:"unplaced"`
	Best     float64 `json:"bestCPUSeconds"` // of the process, garbage collection included
	Median   float64 `json:"medianCPUSeconds"`
	Rate     float64 `json:"podsPerCPUSecond"` // by the median
	Runs     int     `json:"runs"`
}

func main() {
	counts := flag.String("pods", "1000,5000,30000", "numbers of pods")
	runs := flag.Int("runs", 3, "runs of each, of which the median counts")
	most := flag.Duration("most", 2*time.Minute, "no further run once a contender has taken so long on a load")
	slow := flag.Int("karpenter-pods", 5000, "most pods that Karpenter's scheduler is given, whose time grows faster than their number")
	trace := flag.String("trace", "", "pod trace from which the requests of the first load are drawn; without it they are made up")
	out := flag.String("json", "", "also write the table into this file")
	flag.Parse()
	if err := run(*counts, *runs, *slow, *most, *trace, *out); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "karpenter:", err)
		os.Exit(1)
	}
}

func run(counts string, runs, slow int, most time.Duration, trace, out string) error {
	var rows []row
	for _, text := range strings.Split(counts, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("--pods: %q is no number of pods", text)
		}
		loads, err := makeLoads(n, trace)
		if err != nil {
			return err
		}
		for _, l := range loads {
			for _, c := range []struct {
				name string
				pack func([]*corev1.Pod) (packing, error)
			}{{"muster fit", packMuster}, {"karpenter", packKarpenter}} {
				if c.name == "karpenter" && n > slow {
					continue
				}
				r, err := measure(l, c.name, c.pack, runs, most)
				if err != nil {
					return err
				}
				rows = append(rows, r)
				_, _ = fmt.Fprintf(os.Stderr, "%s %d %s: %.3f CPU s\n", r.Load, r.Pods, r.Packer, r.Median)
			}
		}
	}
	write(rows)
	if out == "" {
		return nil
	}
	b, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(b, '\n'), 0o644)
}

func measure(l load, name string, pack func([]*corev1.Pod) (packing, error), runs int, most time.Duration) (row, error) {
	r := row{Load: l.name, Pods: len(l.pods), Packer: name}
	var times []float64
	for total := time.Duration(0); len(times) < runs && (len(times) == 0 || total < most); {
		runtime.GC()
		begin, used := time.Now(), cpuSeconds()
		p, err := pack(l.pods)
		used = cpuSeconds() - used
		if err != nil {
			return r, fmt.Errorf("%s on %s, %w", name, l.name, err)
		}
		if len(times) > 0 && (p.nodes != r.Nodes || cmp.Compare(p.cost, r.Cost) != 0) && name == "muster fit" {
			return r, errors.New("muster fit answers the same question differently")
		}
		total += time.Since(begin)
		times = append(times, used)
		r.Nodes, r.Cost, r.Unplaced = p.nodes, p.cost, p.unplaced
	}
	slices.Sort(times)
	r.Best, r.Median, r.Runs = times[0], times[len(times)/2], len(times)
	r.Rate = float64(r.Pods) / r.Median
	return r, nil
}

// cpuSeconds returns the CPU time that the process has used: on a machine that others use too, it says more than the time that passed.
func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it has no cause to fail
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

func write(rows []row) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "load\tpods\tpacker\tnodes\tUSD/h\tunplaced\tmedian CPU s\tbest\truns\tpods per CPU s\tof Karpenter's rate\tof its cost\t")
	for i, r := range rows {
		ratio, cost := "", ""
		if r.Packer != "karpenter" && i+1 < len(rows) && rows[i+1].Packer == "karpenter" {
			ratio, cost = fmt.Sprintf("%.0f x", r.Rate/rows[i+1].Rate), fmt.Sprintf("%.3f", r.Cost/rows[i+1].Cost)
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%.2f\t%d\t%.3f\t%.3f\t%d\t%.0f\t%s\t%s\t\n", r.Load, r.Pods, r.Packer, r.Nodes, r.Cost, r.Unplaced, r.Median, r.Best, r.Runs, r.Rate, ratio, cost)
	}
	_ = t.Flush()
}
