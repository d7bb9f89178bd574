package e2e

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
)

// DefenderOptions say how one defender of a scenario runs, in this process or in one of
// its own. It is the defender that runs in production, with a rig around it.
type DefenderOptions struct {
	service.Options
	Work   time.Duration // added to each context's processing, three times as much when its history is not in memory
	Record string        // file that processing is recorded in; empty: not recorded
	Ending string        // file that its end is noted in; empty: it is not
}

// Defender is a defender with its rig.
type Defender struct {
	*service.Defender
	record *recorder      // nil: nothing is recorded
	store  defender.Store // that was opened for it; nil: none was
	ending endingFile
}

// OpenDefender connects a defender to everything it needs. A nil store is opened from the
// options.
func OpenDefender(ctx context.Context, o DefenderOptions, store defender.Store) (*Defender, error) {
	d := &Defender{ending: endingFile(o.Ending)}
	if err := d.open(ctx, o, store); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Defender) open(ctx context.Context, o DefenderOptions, store defender.Store) error {
	var err error
	if store == nil {
		if store, err = connect.Open(ctx, o.Store, os.LookupEnv); err != nil {
			return err
		}
		d.store = store
	}
	if o.Work > 0 {
		store = newWorkingStore(store, o.Work)
	}
	if o.Record != "" {
		if d.record, err = newRecorder(o.Record); err != nil {
			return err
		}
		d.wrap(&o.Options)
	}
	d.Defender, err = service.Open(ctx, o.Options, store)
	return err
}

// wrap has what is processed recorded.
func (d *Defender) wrap(o *service.Options) {
	configure := o.Configure
	o.Configure = func(c *defender.Config) {
		c.Processed = d.record.Processed
		if configure != nil {
			configure(c)
		}
		c.Strategies = victim{c.Strategies, c.Judge}
	}
	o.Wrap = func(def *defender.Defender) partition.Handler {
		d.record.Defender = def
		return d.record
	}
}

// Gather implements local.Defender.
func (d *Defender) Gather() ([]*dto.MetricFamily, error) { return d.Registry.Gather() }

// Run works until ctx ends, leaves gracefully and closes everything.
func (d *Defender) Run(ctx context.Context) error {
	if d.ending == "" {
		return errors.Join(d.Defender.Run(ctx), d.closeRig())
	}
	// What it has when it is told to stop is noted before it begins to give that away.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	noted := make(chan error, 1)
	over := make(chan struct{})
	go func() {
		select {
		case <-ctx.Done():
			noted <- d.ending.told(d)
			stop()
		case <-over:
			noted <- nil
		}
	}()
	err := d.Defender.Run(running)
	close(over)
	return errors.Join(err, <-noted, d.closeRig(), d.ending.ended())
}

// Close closes everything that OpenDefender opened. Run does so itself.
func (d *Defender) Close() error {
	var err error
	if d.Defender != nil {
		err = d.Defender.Close()
	}
	return errors.Join(err, d.closeRig())
}

func (d *Defender) closeRig() error {
	var errs []error
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	if d.record != nil {
		errs = append(errs, d.record.Close())
	}
	return errors.Join(errs...)
}

// workingStore stands for heavier analysis: before a result is stored it waits, three
// times as long if the chamber's history had to be read for it.
type workingStore struct {
	defender.Store
	work time.Duration

	mu   sync.Mutex
	read map[defender.Chamber]bool // whose history was read since its last result
}

func newWorkingStore(s defender.Store, work time.Duration) *workingStore {
	return &workingStore{Store: s, work: work, read: map[defender.Chamber]bool{}}
}

// History implements defender.Store.
func (s *workingStore) History(ctx context.Context, q defender.HistoryQuery) ([]defender.UChart, error) {
	s.mu.Lock()
	s.read[q.Chamber] = true
	s.mu.Unlock()
	return s.Store.History(ctx, q)
}

// Commit implements defender.Store.
func (s *workingStore) Commit(ctx context.Context, f defender.Fence, r defender.Result) (defender.CommitOutcome, error) {
	s.mu.Lock()
	work := s.work
	if chamber := r.UChart.Context.Chamber; s.read[chamber] {
		work *= 3
		delete(s.read, chamber)
	}
	s.mu.Unlock()
	if err := pause(ctx, work); err != nil {
		return defender.CommitOutcome{}, err
	}
	return s.Store.Commit(ctx, f, r)
}

// Words that begin the IDs of contexts that are hard to judge.
const (
	poisonContext = "poison" // kills the process that judges it
	slowContext   = "slow"   // takes a while, and does not end when it should
)

// slowJudging is what a slow context takes, before anything of it is stored.
const slowJudging = 600 * time.Millisecond

// victim judges by strategies or, without any, by the standard rule, and falls for
// what is hard to judge.
type victim struct {
	by       defender.Strategies
	standard defender.Judge
}

// Judge implements defender.Strategies.
func (v victim) Judge(ref defender.ContextRef, history []uchart.Point, chart *uchart.Chart) uchart.Verdict {
	switch {
	case strings.HasPrefix(ref.ID, poisonContext):
		if p, err := os.FindProcess(os.Getpid()); err == nil {
			_ = p.Kill()
			time.Sleep(time.Minute)
		}
	case strings.HasPrefix(ref.ID, slowContext):
		time.Sleep(slowJudging)
	}
	if v.by != nil {
		return v.by.Judge(ref, history, chart)
	}
	return v.standard(history, chart)
}
