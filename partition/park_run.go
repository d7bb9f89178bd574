package partition

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// answerRetry finds the answer to a question about the retry queue.
func (p *puller) answerRetry(ctx context.Context, at place, q question, a *answer) {
	switch q := q.(type) {
	case askSpace:
		a.sequence, a.claims, a.err = p.retry.readSpace(ctx, at)
	case askClaim:
		a.sequence, a.outcome, a.err = p.retry.claim(ctx, at, q.fence, q.expect)
	case askCount:
		a.counts, a.err = p.retry.count(ctx, at)
	case askTail:
		a.parked, a.err = p.retry.tail(ctx, at, q.key)
	case askHead:
		a.parked, a.err = p.retry.head(ctx, at, q.key, q.from)
	case askErase:
		a.yes, a.err = p.retry.erase(ctx, at, q.original)
	case askRemove:
		a.yes, a.err = p.retry.remove(ctx, q.sequence)
	case askStoreCopy:
		a.sequence, a.outcome, a.err = p.retry.store(ctx, at, q.mail.body.(*nats.Msg), q.message, q.attempts, q.expect)
	}
}

// ParkedHere is what is parked of the slots that a worker pulls for, as it knows.
type ParkedHere struct {
	Messages, Keys int
	Oldest         time.Time // when the first of them was parked; zero for none
	Parked         uint64    // messages that this worker has parked
	Retries        uint64    // attempts of parked messages by this worker
	Abandoned      uint64    // messages that it has given up
}

func (p *puller) parked() ParkedHere {
	out := ParkedHere{Parked: p.retries.parked.Load(), Retries: p.retries.retries.Load(), Abandoned: p.retries.abandoned.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.delivery.slots {
		if r.retry == nil {
			continue
		}
		l := r.retry.lot
		out.Messages += l.total
		out.Keys += len(l.keys)
		if t := l.oldest(); !t.IsZero() && (out.Oldest.IsZero() || t.Before(out.Oldest)) {
			out.Oldest = t
		}
	}
	return out
}
