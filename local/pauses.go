package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
	"github.com/muster-dev/muster/partition/event"
)

// pauses words what is told of defenders that pause because they can't confirm their lease: one line
// that counts them, where each one's own events would be hundreds on a machine that is
// too slow. It isn't safe for concurrent use.
type pauses struct {
	every time.Duration // at least, between two lines
	hint  bool          // say once what to do on a machine that is too slow

	paused map[string]string // reason, by worker
	began  time.Time         // the first pause since none was; zero: none is, and none is untold
	told   time.Time         // the last line
	lines  int               // about this spell
	times  int               // pauses in this spell
	slow   int               // of them, those of a machine that is too slow
	most   int               // that were paused at once in this spell
	hinted bool              // it was said what to do
}

// slowReason is why a defender pauses whose own machine, or its broker's, is too slow.
const slowReason = "no round trip within the grace"

// event takes notice of what a defender tells.
func (p *pauses) event(at time.Time, e event.Event) {
	switch e.Kind {
	case event.LeaseUncertain:
		if p.paused == nil {
			p.paused = map[string]string{}
		}
		if p.began.IsZero() {
			p.began, p.lines, p.times, p.slow, p.most = at, 0, 0, 0, 0
		}
		p.paused[e.Worker] = e.Reason
		p.times++
		if e.Reason == slowReason {
			p.slow++
		}
		p.most = max(p.most, len(p.paused))
	case event.LeaseConfirmed, event.IdentityLost, event.Left:
		delete(p.paused, e.Worker)
	case event.WorkerGone:
		delete(p.paused, e.Peer)
	default:
	}
}

// line returns what there is to tell at a moment, of that many defenders; "" for nothing.
// It tells once that defenders pause, again every now and then while some do, and once
// that all continue.
func (p *pauses) line(now time.Time, defenders int) string {
	if p.began.IsZero() || !p.told.IsZero() && now.Sub(p.told) < p.every {
		return ""
	}
	lasted := now.Sub(p.began).Round(100 * time.Millisecond)
	p.told = now
	p.lines++
	if len(p.paused) == 0 {
		p.began = time.Time{}
		return fmt.Sprintf("All defenders continue: %s in %v, at most %d of %d defenders at once", quantity.Of(p.times, "pause"), lasted, p.most, max(defenders, p.most)) + p.advice(defenders)
	}
	text := fmt.Sprintf("%d of %d defenders paused: no confirmed lease (%s)", len(p.paused), max(defenders, len(p.paused)), p.reason())
	if len(p.paused) == 1 {
		for worker, why := range p.paused {
			text = fmt.Sprintf("%s paused: no confirmed lease (%s)", worker, why)
		}
	}
	if p.times > len(p.paused) {
		text += fmt.Sprintf("; %s in %v", quantity.Of(p.times, "pause"), lasted)
	}
	return text + p.advice(defenders)
}

// advice says once what to do on a machine that is too slow: where that paused a third of the defenders at once. Who pauses
// at the moment of a line doesn't tell: that would miss a spell that was over before its second line.
func (p *pauses) advice(defenders int) string {
	fewer := defenders / 5
	tooSlow := 3*p.most >= defenders && 2*p.slow >= p.times
	if !p.hint || p.hinted || fewer < 1 || !tooSlow {
		return ""
	}
	p.hinted = true
	return fmt.Sprintf("; the machine may be too slow for %d defenders: try --defenders %d", defenders, fewer)
}

// reason returns why most of the paused ones pause.
func (p *pauses) reason() (most string) {
	count := map[string]int{}
	for _, why := range p.paused {
		count[why]++
		if n := count[why]; n > count[most] || n == count[most] && why < most {
			most = why
		}
	}
	return most
}

const (
	pausesLook  = time.Second      // how often it is looked whether there is something to tell
	pausesEvery = 10 * time.Second // between two lines about pauses
)

// pauseTeller follows pauses by the defenders' events, and tells of them.
type pauseTeller struct {
	mu     sync.Mutex
	pauses pauses
}

// event takes notice of what a defender tells.
func (t *pauseTeller) event(e SeenEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pauses.event(e.At, e.Event)
}

// run tells of defenders that pause until ctx ends. hint adds what to do on a machine that
// is too slow.
func (t *pauseTeller) run(ctx context.Context, hint bool, defenders *Defenders, to *Timeline) {
	t.mu.Lock()
	t.pauses.hint = hint
	t.mu.Unlock()
	tick := time.NewTicker(pausesLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		running := len(defenders.Running())
		t.mu.Lock()
		line := t.pauses.line(time.Now(), running)
		t.mu.Unlock()
		if line != "" {
			to.Say("%s", line)
		}
	}
}
