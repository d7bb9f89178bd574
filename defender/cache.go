package defender

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// cache holds the newest U-charts of the chambers that a defender has, so that a
// verdict needs no read of history. What it returns is what the store would.
//
// A chamber that comes by a planned hand-over is read before (warm), while its
// old owner still writes. So under each new fence the cache first raises the
// chamber's fence in the store, after which the old owner can write nothing, and
// then asks for what it has missed.
type cache struct {
	store Store
	limit int

	mu       sync.Mutex
	chambers map[Chamber]*cached
}

type cached struct {
	mu      sync.Mutex
	loaded  bool
	fence   Fence // under which it is known to be current
	recipes map[string][]UChart
	// complete: recipes that are not in the map have no history at all.
	complete bool
	newest   Position
}

func newCache(store Store, limit int) cache {
	return cache{store: store, limit: limit, chambers: make(map[Chamber]*cached)}
}

func (c *cache) entry(chamber Chamber) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.chambers[chamber]
	if e == nil {
		e = &cached{}
		c.chambers[chamber] = e
	}
	return e
}

func (c *cache) drop(chamber Chamber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.chambers, chamber)
}

func (c *cache) dropIf(gone func(Chamber) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for chamber := range c.chambers {
		if gone(chamber) {
			delete(c.chambers, chamber)
		}
	}
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
			e.fence = Fence{}
			return c.load(ctx, chamber, e)
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
	e.loaded, e.recipes, e.newest = true, make(map[string][]UChart), Position{}
	if len(rows) > 0 {
		e.newest = rows[0].Context.Position()
	}
	slices.Reverse(rows)
	for _, u := range rows {
		e.recipes[u.Context.Recipe] = append(e.recipes[u.Context.Recipe], u)
	}
	// With as many rows as asked for there may be more. They matter to every
	// recipe but one that has all of the rows to itself.
	e.complete = len(rows) < c.limit
	if !e.complete && len(e.recipes) > 1 {
		clear(e.recipes)
	}
	return nil
}

// history returns the U-charts before a context, oldest first, and whether they
// were in memory.
func (c *cache) history(ctx context.Context, ref ContextRef, fence Fence) ([]UChart, bool, error) {
	e := c.entry(ref.Chamber)
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.loaded || e.fence != fence {
		if err := c.store.RaiseFence(ctx, ref.Chamber, fence); err != nil {
			return nil, false, err
		}
	}
	hit := e.loaded
	if e.loaded && e.fence != fence {
		newest, err := c.store.UCharts(ctx, ref.Chamber, 1)
		if err != nil {
			return nil, false, err
		}
		if err := c.catchUp(ctx, ref.Chamber, e, newest); err != nil {
			return nil, false, err
		}
	}
	if !e.loaded {
		if err := c.load(ctx, ref.Chamber, e); err != nil {
			return nil, false, err
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
		return rows, hit, err
	}
	return slices.Clone(rows), hit, nil
}

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
	if !e.loaded || e.fence != fence {
		return
	}
	rows := e.recipes[u.Context.Recipe]
	if len(rows) > 0 && rows[len(rows)-1].Context.Position().Compare(u.Context.Position()) >= 0 {
		if rows[len(rows)-1].Context.Position() != u.Context.Position() {
			e.loaded = false // out of order: read anew
		}
		return
	}
	c.append(e, u)
}

func (c *cache) append(e *cached, u UChart) {
	rows, known := e.recipes[u.Context.Recipe]
	if known || e.complete {
		rows = append(rows, u)
		if len(rows) > c.limit {
			rows = slices.Clone(rows[len(rows)-c.limit:])
		}
		e.recipes[u.Context.Recipe] = rows
	}
	if p := u.Context.Position(); p.Compare(e.newest) > 0 {
		e.newest = p
	}
}
