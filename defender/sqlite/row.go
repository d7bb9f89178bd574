package sqlite

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
)

// row is a row of table ucharts.
type row struct {
	chamber, context, recipe, product, lot, wafer string
	start, end                                    int64
	chart, verdict                                []byte
	alarmState, alarmReason                       sql.NullString
	expires                                       int64
}

const rowColumns = `chamber, context, recipe, product, lot, wafer, start_ns, end_ns, chart, verdict, alarm_state, alarm_reason`

func newRow(r defender.Result) (*row, error) {
	c := r.UChart.Context
	chart, err := r.UChart.Chart.MarshalBinary()
	if err != nil {
		return nil, err
	}
	verdict, err := json.Marshal(r.UChart.Verdict)
	if err != nil {
		return nil, fmt.Errorf("encoding the verdict of %s: %w", c.ID, err)
	}
	row := &row{
		chamber: c.Chamber.String(), context: c.ID, recipe: c.Recipe, product: c.Product, lot: c.Lot, wafer: c.Wafer,
		start: c.Start.UnixNano(), end: c.End.UnixNano(), chart: chart, verdict: verdict, expires: r.Expires.UnixNano(),
	}
	if r.Alarm != nil {
		row.alarmState = sql.NullString{String: r.Alarm.State.String(), Valid: true}
		row.alarmReason = sql.NullString{String: r.Alarm.Reason, Valid: true}
	}
	return row, nil
}

// values and fields follow rowColumns.
func (r *row) values() []any {
	return []any{r.chamber, r.context, r.recipe, r.product, r.lot, r.wafer, r.start, r.end, r.chart, string(r.verdict), r.alarmState, r.alarmReason}
}

func (r *row) fields() []any {
	return []any{&r.chamber, &r.context, &r.recipe, &r.product, &r.lot, &r.wafer, &r.start, &r.end, &r.chart, &r.verdict, &r.alarmState, &r.alarmReason}
}

// equal compares all but the expiry.
func (r *row) equal(o *row) bool {
	return r.chamber == o.chamber && r.context == o.context && r.recipe == o.recipe && r.product == o.product &&
		r.lot == o.lot && r.wafer == o.wafer && r.start == o.start && r.end == o.end &&
		bytes.Equal(r.chart, o.chart) && bytes.Equal(r.verdict, o.verdict) &&
		r.alarmState == o.alarmState && r.alarmReason == o.alarmReason
}

func (r *row) ref() (defender.ContextRef, error) {
	chamber, err := defender.ParseChamber(r.chamber)
	return defender.ContextRef{
		Chamber: chamber, ID: r.context, Recipe: r.recipe, Product: r.product, Lot: r.lot, Wafer: r.wafer,
		Start: unixTime(r.start), End: unixTime(r.end),
	}, err
}

func (r *row) uchart() (defender.UChart, error) {
	ref, err := r.ref()
	if err != nil {
		return defender.UChart{}, err
	}
	u := defender.UChart{Context: ref, Chart: new(uchart.Chart)}
	if err := u.Chart.UnmarshalBinary(r.chart); err != nil {
		return defender.UChart{}, fmt.Errorf("context %s of %s: %w", r.context, r.chamber, err)
	}
	if err := json.Unmarshal(r.verdict, &u.Verdict); err != nil {
		return defender.UChart{}, fmt.Errorf("context %s of %s: reading the verdict, %w", r.context, r.chamber, err)
	}
	return u, nil
}
