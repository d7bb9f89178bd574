package defender

import (
	"context"
	"time"
)

// Store keeps T-charts, U-charts, alarms and attempts. Implementations are safe
// for many goroutines and for many processes, and pass package storetest.
//
// Every method returns an error that wraps ctx.Err() when ctx ends first. A
// write that returns such an error may or may not have happened; each write can
// simply be repeated.
//
// Rows with an expiry are gone at the latest after a DeleteExpired whose time
// is not before it, and may be gone from the moment of expiry.
type Store interface {
	// PutTChart stores an encoded T-chart until expires. Storing it again
	// replaces it.
	PutTChart(ctx context.Context, key TChartKey, blob []byte, expires time.Time) error

	// TChart returns an encoded T-chart, or an error matching [ErrNotFound].
	// The caller owns the bytes.
	TChart(ctx context.Context, key TChartKey) ([]byte, error)

	// History returns the newest q.Limit U-charts of a chamber and recipe that
	// lie strictly before q.Before, oldest first.
	History(ctx context.Context, q HistoryQuery) ([]UChart, error)

	// RaiseFence makes fence the chamber's fence unless it has a higher one,
	// which is a [FencedError]. A new owner calls it before it reads history, so
	// that nothing the previous owner still writes can be missing from it.
	RaiseFence(ctx context.Context, chamber Chamber, fence Fence) error

	// Commit stores the result of one context, once, in one conditional write:
	// all of it or nothing. A fence lower than the chamber's gives a
	// [FencedError] and changes nothing; another becomes the chamber's fence. A
	// context that is already stored is left as it is, with Stored false.
	Commit(ctx context.Context, fence Fence, r Result) (CommitOutcome, error)

	// RegisterChambers adds chambers and sets the weights of known ones.
	RegisterChambers(ctx context.Context, chambers []ChamberInfo) error

	// Chambers returns all registered chambers, ordered by tool, then name.
	Chambers(ctx context.Context) ([]ChamberInfo, error)

	// UChart returns the U-chart of one context, or an error matching
	// [ErrNotFound].
	UChart(ctx context.Context, chamber Chamber, contextID string) (UChart, error)

	// UCharts returns the newest limit U-charts of a chamber over all recipes,
	// newest first.
	UCharts(ctx context.Context, chamber Chamber, limit int) ([]UChart, error)

	// Alarms returns the newest alarms that q asks for, newest first; those that
	// ended together by context, then chamber, descending.
	Alarms(ctx context.Context, q AlarmQuery) ([]Alarm, error)

	// PutLabel stores the label of a context, which may be gone, in place of one that it
	// had. Labels don't expire.
	PutLabel(ctx context.Context, l FaultLabel) error

	// DeleteLabel deletes the label of a context; one that isn't there is no error.
	DeleteLabel(ctx context.Context, key TChartKey) error

	// Labels returns all labels, ordered by chamber as it is written, then context.
	Labels(ctx context.Context) ([]FaultLabel, error)

	// DeleteExpired deletes the rows that expired at or before now and returns
	// how many; a store that does this by itself returns 0.
	DeleteExpired(ctx context.Context, now time.Time) (int, error)

	// Close ends the store after the writes under way. Calls after it return an
	// error matching [ErrClosed]; closing again returns nil.
	Close() error
}

// HistoryQuery selects earlier U-charts of a chamber.
type HistoryQuery struct {
	Chamber Chamber
	Recipe  string   // exactly this recipe
	Before  Position // strictly before; usually the position of the context at hand
	Limit   int      // at most N, the newest; 0 or less gives none
}

// AlarmQuery selects alarms.
type AlarmQuery struct {
	Chamber Chamber   // the zero Chamber asks for all chambers
	Since   time.Time // contexts that ended at or after it
	Limit   int       // at most N, the newest; 0 or less gives none
}

// CommitOutcome tells what a [Store.Commit] did.
type CommitOutcome struct {
	// Stored is true when this call stored the result, and false when the
	// context had been stored before.
	Stored bool
	// Identical is true when what is stored equals the result to the bit. It is
	// false only when an earlier result of the same context was a different one,
	// for example that of another version of the rules; the earlier one stays.
	Identical bool
}
