package e2e

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
)

// How a rate is searched for, and measured.
const (
	stepLength = 10 * time.Second // of one step of a search
	firstRate  = 500              // of a search, messages/s
	finest     = 0.05             // share of the rate that a search ends at
	headroom   = 0.9              // share of the highest rate held that is then measured
	warmRate   = 500              // messages/s of the warm-up, at most
)

// smallLoad are the figures that a defender is to be shown at.
func smallLoad(o *Options, chosen func(flag string) bool) {
	suit(chosen, "chambers", &o.Chambers, 4000)
	suit(chosen, "defenders", &o.Defenders, 45)
	suit(chosen, "slots", &o.Slots, 256)
	suit(chosen, "rate", &o.Rate, 3000)
	suit(chosen, "work", &o.Work, 0)
}

// load publishes at a steady rate, or at the highest that is held, and measures.
func load(ctx context.Context, s *session) error {
	l, err := openLoad(ctx, s)
	if err != nil {
		return err
	}
	defer l.end()
	if err := l.warm(ctx); err != nil {
		return err
	}
	rate := float64(s.o.Rate)
	if rate == 0 {
		if rate, err = l.search(ctx); err != nil {
			return err
		}
		s.report.measure("highest_rate_held", rate)
		rate = max(1, math.Floor(headroom*rate))
	}
	return l.sustain(ctx, rate)
}

// loader is a load on a cluster.
type loader struct {
	*session
	pool  *pool
	pub   *publisher
	turns chan struct{} // of all defenders, which share this process's processors
}

// openLoad starts everything that the load is put on.
func openLoad(ctx context.Context, s *session) (*loader, error) {
	began := time.Now()
	p, err := newPool(ctx, s)
	if err != nil {
		return nil, err
	}
	s.report.measure("points", p.points())
	s.report.measure("traces", len(p.traces))
	s.Say("%d traces of %.0f points and %.3f bytes a point; %d earlier contexts of each of %d chambers", len(p.traces), p.points(), p.bytesPerPoint(), p.history, s.o.Chambers)
	if err := p.seed(ctx, s); err != nil {
		return nil, err
	}
	s.Say("History stored in %.1f s", time.Since(began).Seconds())
	l := &loader{session: s, pool: p, turns: make(chan struct{}, runtime.GOMAXPROCS(0))}
	if l.pub, err = newPublisher(s, p); err != nil {
		return nil, err
	}
	s.rig.reads = sharedTraces{s.Store, p}
	s.rig.records, s.rig.configure = "", l.configure
	if err := s.assemble(ctx); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// configure has a defender tell the publisher what it has stored. It isn't recorded in a
// file, which is work that no defender has.
func (l *loader) configure(c *defender.Config) {
	c.Processed, c.History, c.Turns = l.pub.stored, l.pool.history, l.turns
	if l.o.Case == caseStrategies {
		c.Judge, c.Strategies = nil, strategy.Default()
	}
}

func (l *loader) end() {
	if l.pub != nil {
		l.pub.close()
	}
}

// warm has each chamber process one message: its owner then has the history in
// memory, whatever of it had no time to be read before.
func (l *loader) warm(ctx context.Context) error {
	rate := float64(warmRate)
	if l.o.Rate > 0 {
		rate = min(rate, float64(l.o.Rate))
	}
	began := time.Now()
	ph, err := l.pub.publish(ctx, rate, l.o.Chambers)
	if err == nil {
		err = l.settle(ctx, ph)
	}
	if err != nil {
		return err
	}
	l.Say("Warm: %d chambers in %.1f s, %.1f %% of their histories were in memory", l.o.Chambers, time.Since(began).Seconds(), 100*ph.hitRate())
	return nil
}

// settle waits until everything of a phase is stored and off the stream.
func (l *loader) settle(ctx context.Context, ph *phase) error {
	within := 3*time.Minute + 10*time.Duration(len(ph.micros))*time.Millisecond
	if err := l.Wait(ctx, within, "everything published processed", func() bool { return ph.distinct.Load() >= int64(len(ph.micros)) }); err != nil {
		return err
	}
	pending, err := l.Pending(ctx)
	if err != nil {
		return err
	}
	return l.Wait(ctx, time.Minute, "everything processed acknowledged", func() bool { n, err := pending(); return err == nil && n == 0 })
}

// search returns the highest rate that is held, within a twentieth.
func (l *loader) search(ctx context.Context) (float64, error) {
	var held, failed float64
	for rate := float64(firstRate); ; rate = nextRate(held, failed) {
		ph, err := l.pub.publish(ctx, rate, int(rate*stepLength.Seconds()))
		if err != nil {
			return 0, err
		}
		backlog := ph.backlog()
		if err := l.settle(ctx, ph); err != nil {
			return 0, err
		}
		ok := ph.held(backlog)
		l.Say("%.0f messages/s: %s, %d waiting at the end, held: %t", rate, ph.latency(), backlog, ok)
		if ok {
			held = rate
		} else {
			failed = rate
		}
		if searched(held, failed) {
			if held == 0 {
				return 0, fmt.Errorf("not even one message a second is held: each takes %s", ph.latency())
			}
			return held, nil
		}
	}
}

// searched reports whether the rate that is held and the one that isn't are near
// enough.
func searched(held, failed float64) bool { return failed > 0 && failed-held <= max(finest*failed, 1) }

// nextRate doubles until a rate is not held and halves the distance then.
func nextRate(held, failed float64) float64 {
	if failed == 0 {
		return 2 * held
	}
	return math.Floor((held + failed) / 2)
}

// sustain publishes at a rate for the minutes that are asked for, and judges.
func (l *loader) sustain(ctx context.Context, rate float64) error {
	length := l.o.loadFor
	if length == 0 {
		length = time.Duration(l.o.Minutes * float64(time.Minute))
	}
	n := max(1, int(rate*length.Seconds()))
	l.Say("%.0f messages/s for %v: %d messages", rate, length, n)
	w, err := watch(filepath.Join(l.Dir, "cpu.pprof"), l.pub.storedNow)
	if err != nil {
		return err
	}
	began := time.Now()
	ph, err := l.pub.publish(ctx, rate, n)
	took := time.Since(began)
	backlog := 0
	if err == nil {
		backlog = ph.backlog()
	}
	w.stop()
	if err != nil {
		return err
	}
	l.Say("Published in %.1f s, %d waiting", took.Seconds(), backlog)
	if err := l.settle(ctx, ph); err != nil {
		// What is lost is told by the checks.
		l.Say("%v", err)
	}
	return l.judge(ctx, ph, w, took, backlog)
}

// judge compares what was measured with what is to be.
func (l *loader) judge(ctx context.Context, ph *phase, w *watcher, took time.Duration, backlog int) error {
	r, n := l.report, len(ph.micros)
	lat, late, acks := ph.latency(), quantilesOf(ph.lateness()), ph.acks.quantiles()
	published, done := float64(n)/took.Seconds(), float64(n-backlog)/took.Seconds()
	r.measure("rate_wanted", ph.rate)
	r.measure("rate_published", round(published))
	r.measure("rate_processed", round(done))
	r.measure("published", n)
	r.measure("latency_ms", lat)
	r.measure("publish_late_ms", late)
	r.measure("ack_ms", acks)
	r.measure("backlog_at_end", backlog)
	r.measure("cache_hit_rate", ph.hitRate())
	lost := n - int(ph.distinct.Load())
	r.measure("lost", lost)
	r.measure("duplicates", int(ph.again.Load()))
	equal(r, "messages that the server refused", 0, int(ph.refused.Load()))
	equal(r, "lost", 0, lost)
	r.timed("processed again after an interruption", "0", ph.again.Load() == 0, "%d", ph.again.Load())
	equal(r, "out of order", 0, int(ph.disorder.Load()))
	if err := l.checkStore(ctx, ph); err != nil {
		return err
	}
	r.check("histories in memory", "at least 95 %", ph.hitRate() >= 0.95, "%.2f %%", 100*ph.hitRate())
	r.timed("published, messages/s", fmt.Sprintf("%.0f", ph.rate), published >= onTime*ph.rate, "%.0f, late by ms: %s", published, late)
	r.timed("processed, messages/s", fmt.Sprintf("%.0f", ph.rate), ph.held(backlog), "%.0f, %d waiting at the end", done, backlog)
	r.timed("from due to stored, ms", "p50 under 1000, p95 under 5000", lat.P50 < 1000 && lat.P95 < 5000, "%s", lat)
	r.check("from due to acknowledged, of a sample, ms", "measured", acks.N > 0, "%s", acks)
	return l.judgeMachine(w, n-backlog)
}

// checkStore looks up in the store what some chambers have of the phase.
func (l *loader) checkStore(ctx context.Context, ph *phase) error {
	const sample = 50
	chambers, wrong := 0, 0
	step := max(1, len(l.Chambers)/sample)
	for at := 0; at < len(l.Chambers); at += step {
		want := ph.contextsOf(at, len(l.Chambers))
		rows, err := l.Store.UCharts(ctx, l.Chambers[at], len(want))
		if err != nil {
			return err
		}
		chambers++
		if len(rows) != len(want) {
			wrong++
			continue
		}
		for i, u := range rows { // newest first
			if u.Context.ID != l.pub.name(want[len(want)-1-i]) {
				wrong++
				break
			}
		}
	}
	l.report.check("chambers whose rows in the store are not those published, in order", "0", wrong == 0, "%d of %d looked up", wrong, chambers)
	return nil
}

// judgeMachine tells what it took.
func (l *loader) judgeMachine(w *watcher, messages int) error {
	r := l.report
	r.measure("samples", w.samples)
	parts, err := shares(w.file.Name())
	if err != nil {
		return err
	}
	if cpu := w.cpu(); cpu > 0 {
		each := 1e6 * cpu.Seconds() / float64(max(messages, 1))
		r.measure("cores", round(cpu.Seconds()/w.took.Seconds()))
		r.measure("cpu_us_per_message", round(each))
		r.check("processor time a message, µs", "measured", true, "%.0f, %.2f cores", each, cpu.Seconds()/w.took.Seconds())
		split := map[string]float64{}
		for _, s := range parts {
			split[s.name] = round(100 * s.share)
			r.check("... "+s.name, "measured", true, "%.1f %%, %.0f µs", 100*s.share, each*s.share)
		}
		r.measure("cpu_split_percent", split)
	}
	heap, rss := w.growth(func(s sample) float64 { return s.HeapMiB }), w.growth(func(s sample) float64 { return s.RSSMiB })
	tasks := w.growth(func(s sample) float64 { return float64(s.Goroutines) })
	r.measure("heap_mib", heap)
	r.measure("rss_mib", rss)
	r.measure("goroutines", tasks)
	if w.took < steadyAfter {
		r.check("memory, MiB", "measured", true, "live heap %s, resident %s", heap, rss)
	} else {
		r.check("live heap, MiB", "flat: at most a tenth more in the last quarter than in the second", heap.flat(1.1, 16), "%s", heap)
		r.check("resident memory, MiB", "flat: at most a tenth more in the last quarter than in the second", rss.flat(1.1, 64), "%s", rss)
	}
	r.check("goroutines", "no more in the last quarter than in the second", tasks.flat(1.05, 50), "%s", tasks)
	return nil
}

// steadyAfter is from how long on memory is to be flat. The server remembers
// messages' IDs for two minutes, and that has to fill first.
const steadyAfter = 8 * time.Minute
