package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
)

// This file is how a runner uses watermarks: when it asks the stream, and what it
// tells when a stream is not the one it was.

// looksToBelieve is how often in a row a stream has to be seen shorter than it was
// before that is believed: a replica that has just become leader may still be
// reading what it has.
const looksToBelieve = 3

// marks returns what is remembered of the stream of a slot; p.mu is held.
func (p *puller) marks(slot int) *watermarks { return &p.done[slot%len(p.done)] }

// settledBefore reports whether a message was settled here, and with what generation
// to remember it if not. ok is false if the slot ends before that is known.
func (r *runner) settledBefore(finest int, o original) (settled bool, generation uint64, ok bool) {
	for try := 1; ; try++ {
		r.p.mu.Lock()
		marks := r.p.marks(r.slot)
		recalled := marks.recall(finest, o)
		generation = marks.generation
		r.p.mu.Unlock()
		switch recalled {
		case recallNothing:
			return false, generation, true
		case recallReplaced:
			r.p.rolledBack(r.slot, generation, fmt.Sprintf("message %d is another one than it was", o.sequence))
			continue
		case recallSettled:
		}
		what, err := r.p.lookAtStream(r.ctx, r.slot)
		switch {
		case err == nil && what == "":
			return true, generation, true
		case err == nil && try >= looksToBelieve:
			r.p.rolledBack(r.slot, generation, what)
			continue
		}
		// An unanswered question, or an answer to be asked for again: the slot
		// waits, since what is acknowledged by mistake is lost.
		if !r.rest(pullRetry) {
			return false, 0, false
		}
	}
}

// settle remembers that a message was settled which began in a generation, and
// reports whether it may be acknowledged.
func (r *runner) settle(finest int, o original, generation uint64, reply string) bool {
	r.p.mu.Lock()
	current := r.p.marks(r.slot).settle(finest, o, generation)
	r.p.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.settled = reply; !current {
		r.settled = "" // nor confirmed
	}
	return current
}

// answer tells the server that a message is settled. One of an earlier stream is sent
// back: the server goes by its sequence, and delivers what has that now once more.
func (r *runner) answer(msg *nats.Msg, current bool, settled func(...nats.AckOpt) error) {
	if !current {
		settled = msg.Nak
	}
	_ = settled()
}

// lookAtStream asks the stream of a slot what it is, and returns how that
// contradicts what is remembered of it.
func (p *puller) lookAtStream(ctx context.Context, slot int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	p.mu.Lock()
	marks := p.marks(slot)
	generation, last := marks.generation, marks.last
	p.mu.Unlock()
	s, err := p.js.Stream(ctx, p.layout.streamOf(slot))
	if err != nil {
		return "", err
	}
	info := s.CachedInfo()
	p.mu.Lock()
	defer p.mu.Unlock()
	if marks.generation != generation {
		return "", nil // what is remembered by now may be of a later stream than the answer
	}
	return marks.saw(info.Created, info.State.LastSeq, last), nil
}

// rolledBack forgets what is remembered of a slot's stream, and tells of it, unless
// that was done since a generation.
func (p *puller) rolledBack(slot int, generation uint64, what string) {
	p.mu.Lock()
	marks := p.marks(slot)
	known := marks.generation != generation
	forgotten := 0
	if !known {
		forgotten = marks.forget()
	}
	p.mu.Unlock()
	if known {
		return
	}
	p.lookAtStreams() // what it is now
	stream := p.layout.streamOf(slot)
	p.cfg.Logger.Error("A stream is not the one that it was: it was made again, or its server has lost messages. What was settled of it is forgotten; messages may be handled again.",
		"stream", stream, "seen", what)
	go p.post(noteInput{Event{Kind: EventStreamRolledBack, Reason: stream, Err: what, Count: forgotten}})
}

// lookAtStreams looks whether the streams are what they were, without being asked
// by a message: after a reconnect, when a consumer was missing, and when the server
// rejects a pull. Operators want to know, whether or not a message would be mistaken.
func (p *puller) lookAtStreams() {
	// A look that is under way may have seen a stream before what this one is for, so
	// it is followed by another.
	p.lookAgain.Store(true)
	if !p.looking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		for p.lookAgain.Swap(false) {
			for shard := range p.layout.streams() {
				p.lookUntilSure(shard)
			}
		}
		p.looking.Store(false)
		// Asked for between the last Swap and the Store above.
		if p.lookAgain.Load() {
			p.lookAtStreams()
		}
	}()
}

// lookUntilSure looks at the stream of a shard, which is that of the slot of its
// number.
func (p *puller) lookUntilSure(shard int) {
	for try := 1; p.life.Err() == nil; try++ {
		p.mu.Lock()
		generation := p.marks(shard).generation
		p.mu.Unlock()
		what, err := p.lookAtStream(p.life, shard)
		pause := pullRetry
		switch {
		case err != nil:
			// It may be deleted, and created again in a moment; or the servers are away.
			try, pause = 0, time.Second
		case what == "":
			return
		case try >= looksToBelieve:
			p.rolledBack(shard, generation, what)
			try = 0 // what it is now is to be remembered
		}
		select {
		case <-p.life.Done():
		case <-time.After(pause):
		}
	}
}
