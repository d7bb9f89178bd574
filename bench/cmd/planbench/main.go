// Planbench measures planners side by side and prints one table.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/muster-dev/muster/bench/planning"
)

func main() {
	file := flag.String("json", "", "also write the results to `FILE`")
	runs := flag.Int("runs", 9, "least `number` of timed runs of each planner in each case")
	flag.Parse()
	if flag.NArg() > 0 || *runs < 1 {
		_, _ = fmt.Fprintln(os.Stderr, "planbench: takes no arguments, and -runs must be at least 1")
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, *file, *runs); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "planbench:", err)
		os.Exit(1)
	}
}

// report is the form of the JSON file.
type report struct {
	Go      string            `json:"go"`
	CPUs    int               `json:"cpus"`
	Results []planning.Result `json:"results"`
}

func run(out io.Writer, file string, runs int) error {
	results, err := planning.Measure(planning.Cases(), planning.Planners(), runs, 3*time.Second)
	if err != nil {
		return err
	}
	if err := table(out, results); err != nil {
		return err
	}
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(report{runtime.Version(), runtime.GOMAXPROCS(0), results}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func table(out io.Writer, results []planning.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "slots\tworkers\tplanner\tmoves\tfewest\tmin/max\tmedian\tbest\truns\tallocs\tMB\t")
	for i, r := range results {
		if i > 0 && results[i-1].Case != r.Case {
			_, _ = fmt.Fprintln(w, "\t\t\t\t\t\t\t\t\t\t\t")
		}
		outcome := fmt.Sprintf("%d\t%d\t%d/%d", r.Moves, r.Fewest, r.Min, r.Max)
		if r.Max == 0 {
			outcome = "\t\t" // a part of planning
		}
		_, _ = fmt.Fprintf(w, "%d\t%d to %d\t%s\t%s\t%s\t%s\t%d\t%d\t%.2f\t\n", r.Slots, r.Before, r.After, r.Planner, outcome,
			rounded(r.Median), rounded(r.Best), r.Runs, r.Allocs, float64(r.Bytes)/1e6)
	}
	return w.Flush()
}

// rounded shows nanoseconds in three or four digits.
func rounded(ns int64) string {
	d := time.Duration(ns)
	unit := time.Duration(1)
	for d/unit >= 10_000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
