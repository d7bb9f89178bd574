package ingest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/tchart"
)

// Publisher makes a T-chart durable and announces it, as package collect does.
type Publisher interface {
	MakeDurable(ctx context.Context, ref defender.ContextRef, blob []byte) error
	Announce(ctx context.Context, ref defender.ContextRef) (sequence uint64, err error)
}

// Through returns a Publisher that publishes by a collector.
func Through(c *collect.Collector) Publisher { return collector{c} }

type collector struct{ *collect.Collector }

// Announce publishes the completion message of a run.
func (c collector) Announce(ctx context.Context, ref defender.ContextRef) (uint64, error) {
	return c.Collector.Announce(ctx, ref, nil)
}

// Config is what an [Ingester] works with.
type Config struct {
	Store     defender.Store
	Publisher Publisher
	Defaults  url.Values // of the parameters that a request doesn't give
	MaxBytes  int64      // of one table as it is sent; 0 is 64 MiB
	AtOnce    int        // runs that are taken at a time; 0 is 4
}

// Ingester takes runs. It is safe for concurrent use.
type Ingester struct {
	config Config
	slots  chan struct{} // one for each run that may be taken at a time
	busy   inProgress
	known  chambers
}

// New returns an Ingester.
func New(c Config) *Ingester {
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.AtOnce == 0 {
		c.AtOnce = 4
	}
	return &Ingester{config: c, slots: make(chan struct{}, c.AtOnce), known: chambers{store: c.Store}}
}

// Receipt says that a run is durable: its T-chart is stored and its completion message is in
// the stream, or its result is stored already.
type Receipt struct {
	Chamber  string `json:"chamber"`
	Run      string `json:"run"`
	TChart   string `json:"tchart"`             // key of the T-chart
	Sequence uint64 `json:"sequence,omitempty"` // of the completion message; none if the run was judged before
	Rows     int    `json:"rows"`
	Sensors  int    `json:"sensors"`
	Repeated bool   `json:"repeated"` // the same run was taken before
}

// retryAfter is when to send again what was refused for a moment.
const retryAfter = time.Second

// enter takes a place among the runs that are taken at a time, or refuses. The caller calls leave.
func (i *Ingester) enter() (leave func(), err error) {
	select {
	case i.slots <- struct{}{}:
		return func() { <-i.slots }, nil
	default:
		return nil, &Refusal{Status: http.StatusTooManyRequests, RetryAfter: retryAfter,
			Err: fmt.Errorf("%d runs are being taken, as many as may be at a time: send it again after a second", cap(i.slots))}
	}
}

// Take makes a run durable and announces it, unless that was done before. The error is a
// [*Refusal]. One with RetryAfter leaves open what was done: sending the same again finishes it.
func (i *Ingester) Take(ctx context.Context, run *Run) (Receipt, error) {
	key := run.Ref.TChart()
	leave, ok := i.busy.enter(key)
	if !ok {
		return Receipt{}, &Refusal{Status: http.StatusTooManyRequests, RetryAfter: retryAfter,
			Err: fmt.Errorf("run %s is just being taken: send it again after a second", key)}
	}
	defer leave()

	receipt := Receipt{Chamber: run.Ref.Chamber.String(), Run: run.Ref.ID, TChart: key.String(), Rows: len(run.Trace.Time), Sensors: len(run.Trace.SVIDs)}
	stored, err := i.stored(ctx, run)
	if err != nil {
		return Receipt{}, err
	}
	judged, err := i.judged(ctx, run, stored)
	if err != nil {
		return Receipt{}, err
	}
	receipt.Repeated = stored || judged
	if judged {
		return receipt, nil
	}

	if !stored {
		blob, err := tchart.Encode(&run.Trace)
		if err != nil {
			return Receipt{}, &Refusal{Status: http.StatusBadRequest, Err: err}
		}
		if err := i.config.Publisher.MakeDurable(ctx, run.Ref, blob); err != nil {
			return Receipt{}, later(err)
		}
	}
	if err := i.known.register(ctx, run.Ref.Chamber, int64(run.Trace.Points())); err != nil {
		return Receipt{}, later(err)
	}
	// Also after a repetition: the one before may have ended between the two.
	if receipt.Sequence, err = i.config.Publisher.Announce(ctx, run.Ref); err != nil {
		return Receipt{}, later(err)
	}
	return receipt, nil
}

// later refuses a run because of a server that failed.
func later(err error) *Refusal {
	if partition.IsFull(err) {
		err = fmt.Errorf("the servers have no room: %w", err)
	}
	return &Refusal{Status: http.StatusServiceUnavailable, RetryAfter: 5 * retryAfter, Err: fmt.Errorf("%w: send the same again", err)}
}

// stored reports whether the T-chart of a run is stored. One with other content is refused.
func (i *Ingester) stored(ctx context.Context, run *Run) (bool, error) {
	key := run.Ref.TChart()
	blob, err := i.config.Store.TChart(ctx, key)
	if errors.Is(err, defender.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, later(err)
	}
	decoder := tchart.Decoder{MaxPoints: MaxNumbers}
	var before tchart.Trace
	if err := decoder.Decode(blob, &before); err != nil {
		return false, refuse(http.StatusConflict, "run %s has a T-chart that can't be compared: %w: send the run under another name", key, err)
	}
	if why := difference(&before, &run.Trace); why != "" {
		return false, refuse(http.StatusConflict, "run %s was sent before with other content: %s: nothing was changed; send a corrected run under another name", key, why)
	}
	return true, nil
}

// judged reports whether the result of a run is stored. One that ran at another time is
// refused. The T-chart may have expired before the result: the statistics tell then
// whether the content is the same.
func (i *Ingester) judged(ctx context.Context, run *Run, stored bool) (bool, error) {
	key := run.Ref.TChart()
	u, err := i.config.Store.UChart(ctx, run.Ref.Chamber, run.Ref.ID)
	if errors.Is(err, defender.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, later(err)
	}
	why := moved(u.Context, run.Ref)
	if why == "" && !stored {
		why = unlike(&u, run)
	}
	if why != "" {
		return false, refuse(http.StatusConflict, "run %s was sent before with other content: %s: nothing was changed; send a corrected run under another name", key, why)
	}
	return true, nil
}

// inProgress holds the runs that are being taken. Its lock is held for no longer than it takes
// to look.
type inProgress struct {
	mu   sync.Mutex
	runs map[defender.TChartKey]bool
}

// enter notes a run, unless it is there already.
func (p *inProgress) enter(key defender.TChartKey) (leave func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[key] {
		return nil, false
	}
	if p.runs == nil {
		p.runs = map[defender.TChartKey]bool{}
	}
	p.runs[key] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.runs, key)
	}, true
}

// chambers registers those that the store doesn't know.
type chambers struct {
	store defender.Store

	mu    sync.Mutex
	known map[defender.Chamber]bool
}

// register has the store know a chamber. The weight of one that it knows is somebody else's choice and stays.
func (c *chambers) register(ctx context.Context, chamber defender.Chamber, weight int64) error {
	if c.has(chamber) {
		return nil
	}
	stored, err := c.store.Chambers(ctx)
	if err != nil {
		return fmt.Errorf("looking for chamber %s: %w", chamber, err)
	}
	c.note(stored)
	if c.has(chamber) {
		return nil
	}
	added := []defender.ChamberInfo{{Chamber: chamber, Weight: max(weight, 1)}}
	if err := c.store.RegisterChambers(ctx, added); err != nil {
		return fmt.Errorf("registering chamber %s: %w", chamber, err)
	}
	c.note(added)
	return nil
}

func (c *chambers) has(chamber defender.Chamber) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[chamber]
}

func (c *chambers) note(list []defender.ChamberInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[defender.Chamber]bool{}
	}
	for _, info := range list {
		c.known[info.Chamber] = true
	}
}
