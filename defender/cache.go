package defender

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster/defender/uchart"
)

// cache holds the newest U-charts of a defender's chambers in memory, so that a verdict
// needs no read of history. It returns what the store would.
//
// In a planned handoff the new owner reads a chamber in advance (warm), while the old owner
// still writes. So the first use under a new fence takes two steps, in this order:
//
//  1. Raise the chamber's fence in the store. From then on the old owner can write nothing.
//  2. Read what the old owner wrote after the chamber was warmed.
//
// The cache has a limit in bytes. It evicts the least recently used chambers, which are read
// again when they are needed.
type cache struct {
	store Store
	limit int   // rows of a history
	most  int64 // bytes

	mu        sync.Mutex // never held while an entry's lock is taken
	chambers  map[Chamber]*cached
	used      *list.List // of *cached, least recently used first
	bytes     int64
	evictions uint64
	hits      uint64
	misses    uint64
}

// cached is what the cache has of a chamber. Its lock is held while the store is read, so that
// two verdicts of a chamber don't read the same rows.
type cached struct {
	chamber Chamber
	place   *list.Element // in cache.used; nil after its eviction
	counted int64         // its part of cache.bytes

	mu      sync.Mutex
	size    int64 // its size in bytes, estimated
	loaded  bool
	fence   Fence // under which the rows are known to be current
	recipes map[string][]UChart
	// older holds, by recipe, the earlier quiet rows that a history needs besides those in
	// recipes (see before). A recipe whose rows haven't been read has no entry.
	older map[string][]UChart
	// complete is set if a recipe that is not in recipes has no rows in the store either.
	complete bool
	newest   Position
	// frozen holds frozen limits, by the context in whose row the store keeps them, for
	// histories that begin after that row; nil for limits that have expired.
	frozen map[string]*uchart.Baseline
}

func newCache(store Store, limit int, most int64) *cache {
	return &cache{store: store, limit: limit, most: most, chambers: make(map[Chamber]*cached), used: list.New()}
}

// CacheStats describes the history cache.
type CacheStats struct {
	Chambers  int     `json:"chambers"`  // in memory
	Bytes     int64   `json:"bytes"`     // their estimated size
	Limit     int64   `json:"limit"`     // of Bytes
	Evictions uint64  `json:"evictions"` // chambers evicted to stay within the limit
	Hits      uint64  `json:"hits"`      // histories that were in memory
	Misses    uint64  `json:"misses"`
	HitRate   float64 `json:"hit_rate"` // 0 to 1
}

func (c *cache) stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := CacheStats{Chambers: len(c.chambers), Bytes: c.bytes, Limit: c.most, Evictions: c.evictions, Hits: c.hits, Misses: c.misses}
	if n := c.hits + c.misses; n > 0 {
		s.HitRate = float64(c.hits) / float64(n)
	}
	return s
}

func (c *cache) count(hit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if hit {
		c.hits++
	} else {
		c.misses++
	}
}

func (c *cache) entry(chamber Chamber) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.chambers[chamber]
	if e == nil {
		e = &cached{chamber: chamber}
		e.place = c.used.PushBack(e)
		c.chambers[chamber] = e
	}
	return e
}

// settle updates the size of an entry, whose lock is held, and evicts entries above the limit.
// That may be this entry, if it is too large by itself; its caller can still use it.
func (c *cache) settle(e *cached) {
	size := entryBytes + e.size
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.place == nil {
		return
	}
	c.used.MoveToBack(e.place)
	c.bytes += size - e.counted
	e.counted = size
	for c.bytes > c.most {
		c.remove(c.used.Front().Value.(*cached))
		c.evictions++
	}
}

// remove evicts an entry; c.mu is held.
func (c *cache) remove(e *cached) {
	if e == nil || e.place == nil {
		return
	}
	c.used.Remove(e.place)
	e.place = nil
	c.bytes -= e.counted
	delete(c.chambers, e.chamber)
}

func (c *cache) drop(chamber Chamber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(c.chambers[chamber])
}

func (c *cache) dropIf(gone func(Chamber) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for chamber, e := range c.chambers {
		if gone(chamber) {
			c.remove(e)
		}
	}
}

// Estimated overhead of maps, slices and structs, in bytes.
const (
	entryBytes  = 512
	rowBytes    = 768
	stringBytes = 16
)

// weigh estimates the size of an entry after it was read.
func (e *cached) weigh() {
	n := 0
	for _, rows := range e.recipes {
		n += entryBytes
		for i := range rows {
			n += sizeOf(&rows[i])
		}
	}
	for _, rows := range e.older {
		for i := range rows {
			n += sizeOf(&rows[i])
		}
	}
	for _, b := range e.frozen {
		n += rowBytes + sizeOfBaseline(b)
	}
	e.size = int64(n)
}

// sizeOf estimates the bytes of a row in memory.
func sizeOf(u *UChart) int {
	n := rowBytes
	if c := u.Chart; c != nil {
		n += 8*len(c.Values) + len(c.Valid) + 4*len(c.Steps)
		for _, name := range c.SVIDs {
			n += stringBytes + len(name)
		}
	}
	return n + sizeOfBaseline(u.Verdict.Frozen)
}

func sizeOfBaseline(b *uchart.Baseline) int {
	if b == nil {
		return 0
	}
	n := rowBytes + len(b.Estimates) + 4*len(b.Steps)
	for _, name := range b.SVIDs {
		n += stringBytes + len(name)
	}
	return n
}

// warmReads is how many chambers warm reads at once.
const warmReads = 4

func (c *cache) warm(ctx context.Context, chambers []Chamber) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(warmReads)
	for _, chamber := range chambers {
		g.Go(func() error {
			e := c.entry(chamber)
			e.mu.Lock()
			defer e.mu.Unlock()
			defer c.settle(e)
			e.fence = Fence{}
			if err := c.load(ctx, chamber, e); err != nil {
				return err
			}
			for recipe, rows := range e.recipes {
				older, err := c.olderOf(ctx, e, recipe, rows)
				if err != nil {
					return err
				}
				if _, err := c.points(ctx, e, older, rows); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("warming the cache: %w", err)
	}
	return nil
}

// load reads a chamber's newest U-charts over all recipes.
func (c *cache) load(ctx context.Context, chamber Chamber, e *cached) error {
	rows, err := c.store.UCharts(ctx, chamber, c.limit)
	if err != nil {
		return err
	}
	e.loaded, e.recipes, e.older, e.newest = true, make(map[string][]UChart), make(map[string][]UChart), Position{}
	if len(rows) > 0 {
		e.newest = rows[0].Context.Position()
	}
	slices.Reverse(rows)
	for _, u := range rows {
		e.recipes[u.Context.Recipe] = append(e.recipes[u.Context.Recipe], lean(u, e.recipes[u.Context.Recipe]))
	}
	// With as many rows as asked for the store may have more. Then only a recipe that
	// all of the rows belong to is known to be whole.
	e.complete = len(rows) < c.limit
	if !e.complete && len(e.recipes) > 1 {
		clear(e.recipes)
	}
	e.weigh()
	return nil
}

// past is the history that a verdict rests on.
type past struct {
	rows   []UChart       // the newest before the context, oldest first
	points []uchart.Point // older quiet ones and the same, with the frozen limits that they refer to
	hit    bool           // the rows were in memory
}

// history returns the rows before a context.
func (c *cache) history(ctx context.Context, ref ContextRef, fence Fence) (past, error) {
	e := c.entry(ref.Chamber)
	e.mu.Lock()
	defer e.mu.Unlock()
	defer c.settle(e)
	rows, held, hit, err := c.rows(ctx, e, ref, fence)
	if err != nil {
		return past{}, err
	}
	var older []UChart
	if held {
		older, err = c.olderOf(ctx, e, ref.Recipe, rows)
	} else {
		older, err = c.before(ctx, ref.Chamber, ref.Recipe, rows)
	}
	if err != nil {
		return past{}, err
	}
	points, err := c.points(ctx, e, older, rows)
	c.count(hit)
	return past{rows: rows, points: points, hit: hit}, err
}

// rows returns the newest rows before a context. held reports whether they are those in memory
// for the recipe, and hit whether no read of the store was needed.
func (c *cache) rows(ctx context.Context, e *cached, ref ContextRef, fence Fence) (list []UChart, held, hit bool, err error) {
	if !e.loaded || e.fence != fence {
		if err := c.store.RaiseFence(ctx, ref.Chamber, fence); err != nil {
			return nil, false, false, err
		}
	}
	hit = e.loaded
	if e.loaded && e.fence != fence {
		newest, err := c.store.UCharts(ctx, ref.Chamber, 1)
		if err != nil {
			return nil, false, false, err
		}
		if err := c.catchUp(ctx, ref.Chamber, e, newest); err != nil {
			return nil, false, false, err
		}
	}
	if !e.loaded {
		if err := c.load(ctx, ref.Chamber, e); err != nil {
			return nil, false, false, err
		}
	}
	e.fence = fence
	rows, known := e.recipes[ref.Recipe]
	if !known && !e.complete {
		hit = false
	}
	if len(rows) > 0 && rows[len(rows)-1].Context.Position().Compare(ref.Position()) >= 0 || (!known && !e.complete) {
		// The context is out of order or was seen before, or its recipe is not in
		// memory: read its history from the store.
		rows, err := c.store.History(ctx, HistoryQuery{Chamber: ref.Chamber, Recipe: ref.Recipe, Before: ref.Position(), Limit: c.limit})
		return rows, false, hit, err
	}
	// Rows are only ever added behind these (see append).
	return slices.Clip(rows), true, hit, nil
}

// maxFrozen is how many frozen limits are kept for a chamber. There is rarely more than one
// per recipe.
const maxFrozen = 64

// points converts rows to the points that a verdict is computed from. The store keeps frozen
// limits in the row of the first context that was judged by them, which may be long before.
func (c *cache) points(ctx context.Context, e *cached, older, rows []UChart) ([]uchart.Point, error) {
	if len(older) > 0 {
		rows = slices.Concat(older, rows)
	}
	points := Points(rows)
	for i := range older {
		points[i].Older = true
	}
	here := make(map[string]bool)
	for _, p := range points {
		if p.Baseline != nil {
			here[p.Context] = true
		}
	}
	for i := range points {
		at := rows[i].Verdict.Limits.At
		if at == "" || here[at] {
			continue
		}
		b, err := c.baseline(ctx, e, at)
		if err != nil {
			return nil, err
		}
		points[i].Baseline = b
	}
	return points, nil
}

// baseline returns the frozen limits in the row of a context, nil if the row has expired.
func (c *cache) baseline(ctx context.Context, e *cached, at string) (*uchart.Baseline, error) {
	if b, known := e.frozen[at]; known {
		return b, nil
	}
	var b *uchart.Baseline
	u, err := c.store.UChart(ctx, e.chamber, at)
	switch {
	case err == nil:
		b = uchart.NewPoint(at, nil, u.Verdict).Baseline
	case !errors.Is(err, ErrNotFound):
		return nil, fmt.Errorf("reading the limits that were frozen with %s: %w", at, err)
	}
	if e.frozen == nil || len(e.frozen) >= maxFrozen {
		e.frozen = make(map[string]*uchart.Baseline)
	}
	e.frozen[at] = b
	e.weigh()
	return b, nil
}

// olderOf returns the quiet rows before those in memory for a recipe.
func (c *cache) olderOf(ctx context.Context, e *cached, recipe string, rows []UChart) ([]UChart, error) {
	if older, known := e.older[recipe]; known {
		return older, nil
	}
	older, err := c.before(ctx, e.chamber, recipe, rows)
	if err != nil {
		return nil, err
	}
	e.older[recipe] = older
	e.weigh()
	return older, nil
}

// lacking returns how many earlier quiet rows a history with these newest rows needs: it has
// limit quiet rows in all, but none from before the last maintenance.
func (c *cache) lacking(rows []UChart) int {
	if len(rows) < c.limit {
		return 0
	}
	lacking := c.limit
	for i := range rows {
		switch v := &rows[i].Verdict; {
		case v.State == uchart.Maintenance:
			return 0
		case v.Quiet():
			lacking--
		}
	}
	return max(lacking, 0)
}

// before reads the earlier quiet rows that a history needs besides its newest rows, oldest first,
// so that an alarm of any length leaves enough rows to compute limits from. Each row's verdict
// says whether it is quiet, so every defender reads the same rows.
func (c *cache) before(ctx context.Context, chamber Chamber, recipe string, rows []UChart) ([]UChart, error) {
	var older []UChart // newest first
	for lacking := c.lacking(rows); lacking > 0; {
		// While an alarm stands no row is quiet, so those before the one that opened it
		// are the next. A year of one alarm is skipped and not read.
		at := rows[0].Context.Position()
		if s := rows[0].Verdict.Standing; s != nil && s.Opened != rows[0].Context.ID {
			u, err := c.store.UChart(ctx, chamber, s.Opened)
			if err != nil && !errors.Is(err, ErrNotFound) {
				return nil, fmt.Errorf("reading what opened an alarm of %s: %w", chamber, err)
			}
			if p := u.Context.Position(); err == nil && u.Context.Recipe == recipe && p.Compare(at) < 0 {
				at = p
			}
		}
		most := min(max(lacking, minPage), c.limit)
		page, err := c.store.History(ctx, HistoryQuery{Chamber: chamber, Recipe: recipe, Before: at, Limit: most})
		if err != nil {
			return nil, fmt.Errorf("reading older rows of %s: %w", chamber, err)
		}
		for _, u := range slices.Backward(page) {
			if u.Verdict.State == uchart.Maintenance {
				lacking = 0
			}
			if lacking > 0 && u.Verdict.Quiet() {
				older = append(older, lean(u, rows))
				lacking--
			}
		}
		if len(page) < most {
			break
		}
		rows = page
	}
	slices.Reverse(older)
	return older, nil
}

// minPage is the smallest number of rows to ask for at once.
const minPage = 8

// catchUp adds the rows that the old owner wrote after this one had warmed its cache.
func (c *cache) catchUp(ctx context.Context, chamber Chamber, e *cached, newest []UChart) error {
	if len(newest) == 0 || newest[0].Context.Position() == e.newest {
		return nil
	}
	const few = 8
	rows, err := c.store.UCharts(ctx, chamber, few)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(rows, func(u UChart) bool { return u.Context.Position() == e.newest })
	if at < 0 {
		if e.newest == (Position{}) && len(rows) < few {
			at = len(rows)
		} else {
			return c.load(ctx, chamber, e)
		}
	}
	for i := at - 1; i >= 0; i-- {
		c.append(e, rows[i])
	}
	return nil
}

// add enters a context that was stored.
func (c *cache) add(u UChart, fence Fence) {
	e := c.entry(u.Context.Chamber)
	e.mu.Lock()
	defer e.mu.Unlock()
	defer c.settle(e)
	if !e.loaded || e.fence != fence {
		return
	}
	rows := e.recipes[u.Context.Recipe]
	if len(rows) > 0 && rows[len(rows)-1].Context.Position().Compare(u.Context.Position()) >= 0 {
		if rows[len(rows)-1].Context.Position() != u.Context.Position() {
			e.loaded = false // out of order: read again
		}
		return
	}
	c.append(e, u)
}

// lean strips a row, which the caller owns, to what a history needs. The reasons of a verdict
// are a large part of a row, and are only read from the store. The names of sensors are shared
// with the row before if they are the same: the names of a hundred rows are most of what the
// garbage collector would have to scan.
func lean(u UChart, before []UChart) UChart {
	v := &u.Verdict
	v.Violations, v.Signals, v.Multivariate, v.Faults = nil, nil, nil, nil
	if len(before) == 0 || u.Chart == nil {
		return u
	}
	last := before[len(before)-1].Chart
	if last != nil && slices.Equal(last.SVIDs, u.Chart.SVIDs) {
		u.Chart.SVIDs = last.SVIDs
	}
	return u
}

// append adds the newest row of a recipe. It never changes rows that history has returned: it
// drops the oldest by reslicing, and copies the slice when its capacity, an eighth above the
// limit, is used up.
func (c *cache) append(e *cached, u UChart) {
	rows, known := e.recipes[u.Context.Recipe]
	if known || e.complete {
		if !known {
			e.size += entryBytes
		}
		if len(rows) == cap(rows) {
			rows = append(make([]UChart, 0, len(rows)+max(c.limit/8, 1)), rows...)
		}
		u = lean(u, rows)
		rows = append(rows, u)
		e.size += int64(sizeOf(&u))
		older, tracked := e.older[u.Context.Recipe]
		for len(rows) > c.limit {
			if tracked && rows[0].Verdict.Quiet() {
				older = append(older, rows[0])
			} else {
				e.size -= int64(sizeOf(&rows[0]))
			}
			rows = rows[1:]
		}
		e.recipes[u.Context.Recipe] = rows
		if tracked {
			e.older[u.Context.Recipe] = e.trim(older, c.lacking(rows))
		}
	}
	if p := u.Context.Position(); p.Compare(e.newest) > 0 {
		e.newest = p
	}
}

// trim returns the newest rows, at most that many, and subtracts the others from the size.
func (e *cached) trim(rows []UChart, most int) []UChart {
	for len(rows) > most {
		e.size -= int64(sizeOf(&rows[0]))
		rows = rows[1:]
	}
	return rows
}
