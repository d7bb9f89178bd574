package cassandra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"github.com/muster-dev/muster/defender"
)

// PutLabel implements [defender.Store].
func (s *Store) PutLabel(ctx context.Context, l defender.FaultLabel) error {
	if err := l.Validate(); err != nil {
		return fmt.Errorf("labelling a run: %w", err)
	}
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encoding the label of %s, context %s: %w", l.Chamber, l.Context, err)
	}
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = s.session.Query(`INSERT INTO labels (bucket, chamber, context, label) VALUES (0, ?, ?, ?)`, l.Chamber.String(), l.Context, string(data)).
		Idempotent(true).ExecContext(ctx)
	return labelError("storing", err)
}

// DeleteLabel implements [defender.Store].
func (s *Store) DeleteLabel(ctx context.Context, key defender.TChartKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	end, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	err = s.session.Query(`DELETE FROM labels WHERE bucket = 0 AND chamber = ? AND context = ?`, key.Chamber.String(), key.Context).
		Idempotent(true).ExecContext(ctx)
	return labelError("deleting", err)
}

// Labels implements [defender.Store].
func (s *Store) Labels(ctx context.Context) ([]defender.FaultLabel, error) {
	end, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var list []defender.FaultLabel
	err = s.each(ctx, `SELECT label FROM labels WHERE bucket = 0`, nil, func(scan func(...any) bool) (bool, error) {
		var text string
		if !scan(&text) {
			return false, nil
		}
		var l defender.FaultLabel
		err := json.Unmarshal([]byte(text), &l)
		list = append(list, l)
		return true, err
	})
	if err != nil {
		return nil, labelError("reading", err)
	}
	return list, nil
}

// labelError explains an error of the table of labels, which keyspaces of earlier versions
// lack. Everything else works without it, so [Open] doesn't look for it.
func labelError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if refused := gocql.RequestError(nil); errors.As(err, &refused) && refused.Code() == gocql.ErrCodeInvalid {
		err = fmt.Errorf("%w: %w: create its table with muster defender create-schema", ErrNoSchema, err)
	}
	return fmt.Errorf("%s labels of faults: %w", doing, err)
}
