package sqlite

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
)

// History implements [defender.Store].
func (s *Store) History(ctx context.Context, q defender.HistoryQuery) ([]defender.UChart, error) {
	if q.Limit <= 0 {
		return nil, nil
	}
	end := q.Before.End.UnixNano()
	if q.Before.End.IsZero() {
		return nil, nil
	}
	history, err := s.ucharts(ctx, `SELECT `+rowColumns+` FROM ucharts
		WHERE chamber = ? AND recipe = ? AND (end_ns, context) < (?, ?)
		ORDER BY end_ns DESC, context DESC LIMIT ?`,
		q.Chamber.String(), q.Recipe, end, q.Before.Context, q.Limit)
	if err != nil {
		return nil, fmt.Errorf("reading the history of %s: %w", q.Chamber, err)
	}
	slices.Reverse(history)
	return history, nil
}

// UChart implements [defender.Store].
func (s *Store) UChart(ctx context.Context, chamber defender.Chamber, contextID string) (defender.UChart, error) {
	found, err := s.ucharts(ctx, `SELECT `+rowColumns+` FROM ucharts WHERE chamber = ? AND context = ?`, chamber.String(), contextID)
	if err == nil && len(found) == 0 {
		err = defender.ErrNotFound
	}
	if err != nil {
		return defender.UChart{}, fmt.Errorf("reading the U-chart of %s, context %s: %w", chamber, contextID, err)
	}
	return found[0], nil
}

// UCharts implements [defender.Store].
func (s *Store) UCharts(ctx context.Context, chamber defender.Chamber, limit int) ([]defender.UChart, error) {
	if limit <= 0 {
		return nil, nil
	}
	return s.ucharts(ctx, `SELECT `+rowColumns+` FROM ucharts WHERE chamber = ?
		ORDER BY end_ns DESC, context DESC LIMIT ?`, chamber.String(), limit)
}

func (s *Store) ucharts(ctx context.Context, query string, args ...any) ([]defender.UChart, error) {
	var found []defender.UChart
	err := s.results.rows(ctx, query, args, func(scan func(...any) error) error {
		var r row
		if err := scan(r.fields()...); err != nil {
			return err
		}
		u, err := r.uchart()
		found = append(found, u)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Alarms implements [defender.Store].
func (s *Store) Alarms(ctx context.Context, q defender.AlarmQuery) ([]defender.Alarm, error) {
	if q.Limit <= 0 {
		return nil, nil
	}
	where, args := `alarm_state IS NOT NULL AND end_ns >= ?`, []any{int64(0)}
	if !q.Since.IsZero() {
		args[0] = q.Since.UnixNano()
	}
	if q.Chamber != (defender.Chamber{}) {
		where, args = where+` AND chamber = ?`, append(args, q.Chamber.String())
	}
	var alarms []defender.Alarm
	err := s.results.rows(ctx, `SELECT chamber, context, recipe, product, lot, wafer, start_ns, end_ns, alarm_state, alarm_reason
		FROM ucharts WHERE `+where+` ORDER BY end_ns DESC, context DESC, chamber DESC LIMIT ?`, append(args, q.Limit), func(scan func(...any) error) error {
		var r row
		err := scan(&r.chamber, &r.context, &r.recipe, &r.product, &r.lot, &r.wafer, &r.start, &r.end, &r.alarmState, &r.alarmReason)
		if err != nil {
			return err
		}
		ref, err := r.ref()
		if err != nil {
			return err
		}
		var state uchart.State
		if err := state.UnmarshalText([]byte(r.alarmState.String)); err != nil {
			return err
		}
		alarms = append(alarms, defender.Alarm{Context: ref, State: state, Reason: r.alarmReason.String})
		return nil
	})
	return alarms, err
}
