package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/muster-dev/muster/defender"
)

// labelTable is created with the first label and not by a version of the schema: programs that
// know no labels go on using a file that has some.
const labelTable = `CREATE TABLE IF NOT EXISTS labels (
	chamber TEXT NOT NULL,
	context TEXT NOT NULL,
	label   TEXT NOT NULL,
	PRIMARY KEY (chamber, context)
) WITHOUT ROWID`

// PutLabel implements [defender.Store].
func (s *Store) PutLabel(ctx context.Context, l defender.FaultLabel) error {
	if err := l.Validate(); err != nil {
		return fmt.Errorf("labelling a run: %w", err)
	}
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the label of %s, context %s: %w", l.Chamber, l.Context, err)
	}
	if err := s.results.write.do(ctx, func(tx *transaction) error { return tx.exec(labelTable) }); err != nil {
		return err
	}
	return s.results.write.do(ctx, func(tx *transaction) error {
		return tx.exec(`INSERT INTO labels (chamber, context, label) VALUES (?, ?, ?)
			ON CONFLICT (chamber, context) DO UPDATE SET label = excluded.label`, l.Chamber.String(), l.Context, string(data))
	})
}

// DeleteLabel implements [defender.Store].
func (s *Store) DeleteLabel(ctx context.Context, key defender.TChartKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	there, err := s.labelled(ctx)
	if err != nil || !there {
		return err
	}
	return s.results.write.do(ctx, func(tx *transaction) error {
		return tx.exec(`DELETE FROM labels WHERE chamber = ? AND context = ?`, key.Chamber.String(), key.Context)
	})
}

// Labels implements [defender.Store].
func (s *Store) Labels(ctx context.Context) ([]defender.FaultLabel, error) {
	there, err := s.labelled(ctx)
	if err != nil || !there {
		return nil, err
	}
	var list []defender.FaultLabel
	err = s.results.rows(ctx, `SELECT label FROM labels ORDER BY chamber, context`, nil, func(scan func(...any) error) error {
		var text string
		if err := scan(&text); err != nil {
			return err
		}
		var l defender.FaultLabel
		err := json.Unmarshal([]byte(text), &l)
		list = append(list, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the labels of faults: %w", err)
	}
	return list, nil
}

// labelled reports whether there was ever a label.
func (s *Store) labelled(ctx context.Context) (bool, error) {
	n := 0
	err := s.results.row(ctx, `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'labels'`, nil, &n)
	return n > 0, err
}
