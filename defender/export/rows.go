package export

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// run says which run a row is of, in all tables.
type run struct {
	Chamber string    `parquet:"chamber,dict"` // tool:chamber
	Run     string    `parquet:"run,dict"`
	Recipe  string    `parquet:"recipe,dict"`
	Product string    `parquet:"product,dict"`
	Batch   string    `parquet:"lot,dict"`
	Wafer   string    `parquet:"wafer,dict"`
	Start   time.Time `parquet:"start,timestamp(nanosecond)"`
	End     time.Time `parquet:"end,timestamp(nanosecond)"`
}

func runOf(r defender.ContextRef) run {
	return run{Chamber: r.Chamber.String(), Run: r.ID, Recipe: r.Recipe, Product: r.Product, Batch: r.Lot, Wafer: r.Wafer, Start: r.Start, End: r.End}
}

// sampleRow is a row of traces: the values of a T-chart in the long form.
type sampleRow struct {
	Chamber string  `parquet:"chamber,dict"`
	Run     string  `parquet:"run,dict"`
	Time    float64 `parquet:"time"` // s, as in the T-chart
	Step    int32   `parquet:"step"`
	Sensor  string  `parquet:"sensor,dict"`
	Value   float64 `parquet:"value"` // NaN is a missing sample
}

// traces gives the samples of a run, sensor by sensor. A T-chart that has expired has none.
func (e *exporter) traces(ctx context.Context, u defender.UChart, emit func(sampleRow) error) error {
	if u.Chart == nil || len(u.Chart.SVIDs) == 0 { // a mark of maintenance
		return nil
	}
	blob, err := e.store.TChart(ctx, u.Context.TChart())
	if errors.Is(err, defender.ErrNotFound) {
		e.expired++
		return nil
	}
	if err != nil {
		return err
	}
	trace, err := tchart.Decode(blob)
	if err != nil {
		return fmt.Errorf("reading its T-chart: %w", err)
	}
	row := sampleRow{Chamber: u.Context.Chamber.String(), Run: u.Context.ID}
	for i, name := range trace.SVIDs {
		row.Sensor = name
		for j, v := range trace.Values[i] {
			row.Time, row.Step, row.Value = trace.Time[j], trace.Step[j], v
			if err := emit(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// statisticRow is a row of statistics: those of a sensor in a recipe step. One that isn't
// valid, as the standard deviation of a single sample, is null.
type statisticRow struct {
	Chamber string   `parquet:"chamber,dict"`
	Run     string   `parquet:"run,dict"`
	Sensor  string   `parquet:"sensor,dict"`
	Step    int32    `parquet:"step"`
	Count   *float64 `parquet:"count,optional"`
	Mean    *float64 `parquet:"mean,optional"`
	StdDev  *float64 `parquet:"stddev,optional"`
	Min     *float64 `parquet:"min,optional"`
	Max     *float64 `parquet:"max,optional"`
	Range   *float64 `parquet:"range,optional"`
	Slope   *float64 `parquet:"slope,optional"` // per second
	Area    *float64 `parquet:"area,optional"`  // times seconds
}

func statistics(_ context.Context, u defender.UChart, emit func(statisticRow) error) error {
	if u.Chart == nil {
		return nil
	}
	for i, name := range u.Chart.SVIDs {
		for j, step := range u.Chart.Steps {
			valid := func(s uchart.Statistic) *float64 {
				if v, ok := u.Chart.Value(i, j, s); ok {
					return &v
				}
				return nil
			}
			row := statisticRow{Chamber: u.Context.Chamber.String(), Run: u.Context.ID, Sensor: name, Step: step,
				Count: valid(uchart.Count), Mean: valid(uchart.Mean), StdDev: valid(uchart.StdDev), Min: valid(uchart.Min),
				Max: valid(uchart.Max), Range: valid(uchart.Range), Slope: valid(uchart.Slope), Area: valid(uchart.Area)}
			if err := emit(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// verdictRow is a row of verdicts and of alarms: what was concluded from a run.
type verdictRow struct {
	run
	State      string   `parquet:"state,dict"`
	Reason     string   `parquet:"reason"`
	Strategy   string   `parquet:"strategy,dict"`
	Charts     int64    `parquet:"charts"`
	Violated   int64    `parquet:"violated"`
	Signaled   int64    `parquet:"signaled"`
	Score      *float64 `parquet:"score,optional"`
	ScoreLimit *float64 `parquet:"score_limit,optional"`
	Standing   bool     `parquet:"alarm_stands"` // after the run
}

func verdicts(_ context.Context, u defender.UChart, emit func(verdictRow) error) error {
	v := u.Verdict
	return emit(verdictRow{run: runOf(u.Context), State: v.State.String(), Reason: v.Reason(), Strategy: v.Strategy,
		Charts: int64(v.Charts), Violated: int64(v.Violated), Signaled: int64(v.Signaled),
		Score: finite(v.Score), ScoreLimit: finite(v.ScoreLimit), Standing: v.Standing != nil})
}

// alarms gives the runs that raised an alarm.
func alarms(ctx context.Context, u defender.UChart, emit func(verdictRow) error) error {
	if !u.Verdict.Flagged() {
		return nil
	}
	return verdicts(ctx, u, emit)
}

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
