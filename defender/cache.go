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

// cache holds the newest U-charts of the chambers that a defender has, so that a
// verdict needs no read of history. What it returns is what the store would.
//
// A chamber that comes by a planned handoff is read before (warm), while its
// old owner still writes. So under each new fence the cache first raises the
// chamber's fence in the store, after which the old owner can write nothing, and
// then asks for what it has missed.
//
// It holds no more bytes than it may: the chambers that were used least lately
// go, and are read again when they are needed.
type cache struct {
	store Store
	limit int
	most  int64 // bytes

	mu        sync.Mutex
	chambers  map[Chamber]*cached
	used      *list.List // of *cached, least lately used first
	bytes     int64
	evictions uint64
	hits      uint64
	misses    uint64
}

type cached struct {
	chamber Chamber
	place   *list.Element // in cache.used; nil once it is gone
	counted int64         // of cache.bytes

	mu      sync.Mutex
	size    int64 // about what it takes
	loaded  bool
	fence   Fence // under which it is known to be current
	recipes map[string][]UChart
	// older holds, by recipe, the quiet rows before those of recipes that a history
	// takes (see before); there is no entry while they aren't known.
	older map[string][]UChart
	// complete: recipes that are not in the map have no history at all.
	complete bool
	newest   Position
	// frozen holds limits by the context in whose row they are kept, as far as a
	// history refers to rows before it; nil for one that has expired.
	frozen map[string]*uchart.Baseline
}

func newCache(store Store, limit int, most int64) *cache {
	return &cache{store: store, limit: limit, most: most, chambers: make(map[Chamber]*cached), used: list.New()}
}

// CacheStats tells of the history cache.
type CacheStats struct {
	Chambers  int     `json:"chambers"`  // in memory
	Bytes     int64   `json:"bytes"`     // about what they take
	Limit     int64   `json:"limit"`     // what they may take
	Evictions uint64  `json:"evictions"` // chambers that went for want of room
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

// settle counts what an entry takes, whose lock is held, and makes room. One that
// is too large by itself goes, too; a caller that works with it still has it.
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

// remove forgets an entry; c.mu is held.
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

// What maps, slices and structs take besides what they hold, about, in bytes.
const (
	entryBytes  = 512
	rowBytes    = 768
	stringBytes = 16
)

// weigh counts what an entry takes after it was read again.
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

// sizeOf returns about how many bytes a row takes in memory.
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

// warmReads bounds the reads under way at once while warming.
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
	// With as many rows as asked for there may be more. They matter to every
	// recipe but one that has all of the rows to itself.
	e.complete = len(rows) < c.limit
	if !e.complete && len(e.recipes) > 1 {
		clear(e.recipes)
	}
	e.weigh()
	return nil
}

// past is what a verdict rests on.
type past struct {
	rows   []UChart       // the newest before the context, oldest first
	points []uchart.Point // older quiet ones and the same, with the frozen limits that they refer to
	hit    bool           // they were in memory
}

// history returns what lies before a context.
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

// rows returns the newest rows before a context, whether they are those that are held for
// the recipe, and whether no store had to be asked.
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
		// A context out of order or seen before, or a recipe that is not in
		// memory: the store knows what lies before it.
		rows, err := c.store.History(ctx, HistoryQuery{Chamber: ref.Chamber, Recipe: ref.Recipe, Before: ref.Position(), Limit: c.limit})
		return rows, false, hit, err
	}
	// Rows are only ever added behind these (see append).
	return slices.Clip(rows), true, hit, nil
}

// maxFrozen bounds the limits that are remembered for a chamber; there are rarely
// more than one for each recipe.
const maxFrozen = 64

// points returns rows as they are judged by. Frozen limits are kept in the row of
// the first context judged by them, which may lie long before.
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

// baseline returns the frozen limits kept in the row of a context, nil if that has
// expired.
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

// olderOf returns the quiet rows before those that are held for a recipe.
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

// lacking returns how many quiet rows a history with these newest rows takes from before
// them: it has as many quiet ones as it has newest ones, as far as maintenance allows.
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

// before reads the quiet rows that a history takes from before its newest rows, oldest
// first, so that limits don't run out however long an alarm lasts. What is quiet and what
// isn't is stored with each row: whichever defender reads them gets the same.
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

// minPage is the least that is asked for at once.
const minPage = 8

// catchUp adds what the old owner wrote after this one had warmed its cache.
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

// lean returns a row, which nobody else has, with what a history is asked for: why a
// verdict is as it is takes a good part of its room, and stays in the store. Names
// are those of the row before it where they are the same; of a hundred rows they are
// most of what the collector of garbage has to look at.
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

// append adds the newest row of a recipe. Rows that were handed out are left as they
// are: the oldest ones stay before the slice until it is copied, which is when an
// eighth of its length has been added.
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

// trim returns that many of the newest rows, and counts the others off.
func (e *cached) trim(rows []UChart, most int) []UChart {
	for len(rows) > most {
		e.size -= int64(sizeOf(&rows[0]))
		rows = rows[1:]
	}
	return rows
}
