package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/defender"
)

// Store is a [defender.Store] on two SQLite files.
type Store struct {
	results *file
	tcharts *file
}

var _ defender.Store = (*Store)(nil)

// Open opens the files and creates them if they don't exist. Any number of
// processes may have them open. The error names the path that is at fault and
// what to do about it; ctx bounds the wait for other processes' locks.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Path == "" {
		return nil, errors.New("no path given for the store")
	}
	if c.TChartPath == "" {
		ext := filepath.Ext(c.Path)
		c.TChartPath = strings.TrimSuffix(c.Path, ext) + "-tcharts" + ext
	}
	if c.TChartPath == c.Path {
		return nil, fmt.Errorf("%s is given for both results and T-charts: name two files", c.Path)
	}
	if c.Readers <= 0 {
		c.Readers = 4
	}
	r, err := openFile(ctx, c.Path, results, c)
	if err != nil {
		return nil, err
	}
	t, err := openFile(ctx, c.TChartPath, tcharts, c)
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return &Store{results: r, tcharts: t}, nil
}

// Close implements [defender.Store].
func (s *Store) Close() error {
	return errors.Join(s.results.close(), s.tcharts.close())
}

// PutTChart implements [defender.Store].
func (s *Store) PutTChart(ctx context.Context, key defender.TChartKey, blob []byte, expires time.Time) error {
	if err := key.Validate(); err != nil {
		return err
	}
	if blob == nil {
		blob = []byte{}
	}
	return s.tcharts.write.do(ctx, func(tx *transaction) error {
		return tx.exec(`INSERT INTO tcharts (chamber, context, expires_ns, blob) VALUES (?, ?, ?, ?)
			ON CONFLICT (chamber, context) DO UPDATE SET expires_ns = excluded.expires_ns, blob = excluded.blob`,
			key.Chamber.String(), key.Context, expires.UnixNano(), blob)
	})
}

// TChart implements [defender.Store].
func (s *Store) TChart(ctx context.Context, key defender.TChartKey) ([]byte, error) {
	var blob []byte
	err := s.tcharts.row(ctx, `SELECT blob FROM tcharts WHERE chamber = ? AND context = ?`,
		[]any{key.Chamber.String(), key.Context}, &blob)
	if err != nil {
		return nil, fmt.Errorf("reading the T-chart %s: %w", key, err)
	}
	return blob, nil
}

// RaiseFence implements [defender.Store].
func (s *Store) RaiseFence(ctx context.Context, chamber defender.Chamber, fence defender.Fence) error {
	if err := errors.Join(chamber.Validate(), checkFence(fence)); err != nil {
		return err
	}
	var refused error
	err := s.results.write.do(ctx, func(tx *transaction) (err error) {
		refused, err = raiseFence(tx, chamber, fence)
		return err
	})
	if err != nil {
		return err
	}
	return refused
}

// raiseFence returns a FencedError as refused, not as err, so that the other
// writes of the transaction go on.
func raiseFence(tx *transaction, chamber defender.Chamber, fence defender.Fence) (refused, err error) {
	key := chamber.String()
	var version, claim int64
	err = tx.row(`SELECT map_version, claim_revision FROM fences WHERE chamber = ?`, []any{key}, &version, &claim)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	stored := defender.Fence{MapVersion: uint64(version), ClaimRevision: uint64(claim)}
	switch known := err == nil; {
	case known && fence.Compare(stored) < 0:
		return &defender.FencedError{Chamber: chamber, Offered: fence, Stored: stored}, nil
	case known && fence == stored:
		return nil, nil
	}
	return nil, tx.exec(`INSERT INTO fences (chamber, map_version, claim_revision) VALUES (?, ?, ?)
		ON CONFLICT (chamber) DO UPDATE SET map_version = excluded.map_version, claim_revision = excluded.claim_revision`,
		key, int64(fence.MapVersion), int64(fence.ClaimRevision))
}

func checkFence(f defender.Fence) error {
	if f.MapVersion > math.MaxInt64 || f.ClaimRevision > math.MaxInt64 {
		return fmt.Errorf("fence %s is out of range", f)
	}
	return nil
}

// Commit implements [defender.Store].
func (s *Store) Commit(ctx context.Context, fence defender.Fence, r defender.Result) (defender.CommitOutcome, error) {
	if err := errors.Join(r.Validate(), checkFence(fence)); err != nil {
		return defender.CommitOutcome{}, err
	}
	offered, err := newRow(r)
	if err != nil {
		return defender.CommitOutcome{}, err
	}
	var outcome defender.CommitOutcome
	var refused error
	err = s.results.write.do(ctx, func(tx *transaction) (err error) {
		outcome = defender.CommitOutcome{}
		refused, err = raiseFence(tx, r.UChart.Context.Chamber, fence)
		if err != nil || refused != nil {
			return err
		}
		outcome, err = insertOnce(tx, offered)
		return err
	})
	switch {
	case err != nil:
		return defender.CommitOutcome{}, err
	case refused != nil:
		return defender.CommitOutcome{}, refused
	}
	return outcome, nil
}

func insertOnce(tx *transaction, offered *row) (defender.CommitOutcome, error) {
	n, err := tx.changes(`INSERT INTO ucharts (`+rowColumns+`, expires_ns)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (chamber, context) DO NOTHING`,
		append(offered.values(), offered.expires)...)
	if err != nil || n == 1 {
		return defender.CommitOutcome{Stored: n == 1, Identical: true}, err
	}
	var stored row
	err = tx.row(`SELECT `+rowColumns+` FROM ucharts WHERE chamber = ? AND context = ?`,
		[]any{offered.chamber, offered.context}, stored.fields()...)
	return defender.CommitOutcome{Identical: stored.equal(offered)}, err
}

// RegisterChambers implements [defender.Store].
func (s *Store) RegisterChambers(ctx context.Context, chambers []defender.ChamberInfo) error {
	for _, c := range chambers {
		if err := c.Chamber.Validate(); err != nil {
			return fmt.Errorf("registering %s: %w", c.Chamber, err)
		}
		if c.Weight < 1 {
			return fmt.Errorf("registering %s: weight %d is less than 1", c.Chamber, c.Weight)
		}
	}
	return s.results.write.do(ctx, func(tx *transaction) error {
		for _, c := range chambers {
			err := tx.exec(`INSERT INTO chambers (tool, name, weight) VALUES (?, ?, ?)
				ON CONFLICT (tool, name) DO UPDATE SET weight = excluded.weight`, c.Chamber.Tool, c.Chamber.Name, c.Weight)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Chambers implements [defender.Store].
func (s *Store) Chambers(ctx context.Context) ([]defender.ChamberInfo, error) {
	var chambers []defender.ChamberInfo
	err := s.results.rows(ctx, `SELECT tool, name, weight FROM chambers ORDER BY tool, name`, nil, func(scan func(...any) error) error {
		var c defender.ChamberInfo
		err := scan(&c.Chamber.Tool, &c.Chamber.Name, &c.Weight)
		chambers = append(chambers, c)
		return err
	})
	return chambers, err
}

// DeleteExpired implements [defender.Store].
func (s *Store) DeleteExpired(ctx context.Context, now time.Time) (int, error) {
	total := 0
	for _, d := range []struct {
		file  *file
		query string
	}{
		{s.tcharts, `DELETE FROM tcharts WHERE id IN (SELECT id FROM tcharts WHERE expires_ns <= ? LIMIT ?)`},
		{s.results, `DELETE FROM ucharts WHERE id IN (SELECT id FROM ucharts WHERE expires_ns <= ? LIMIT ?)`},
	} {
		n, err := d.file.deleteAll(ctx, d.query, now)
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
