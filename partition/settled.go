package partition

import (
	"context"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// This file is how a worker looks at its streams, and what it tells when one is not the
// stream that it was.

// looksToBelieve is how often in a row a stream has to be seen shorter than it was
// before that is believed: a replica that has just become leader may still be
// reading what it has.
const looksToBelieve = 3

// lookAtStream asks the stream of a slot what it is, and returns how that
// contradicts what is remembered of it.
func (p *puller) lookAtStream(ctx context.Context, slot int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	generation, last := p.memory.known(slot)
	s, err := p.js.Stream(ctx, p.layout.streamOf(slot))
	if err != nil {
		return "", err
	}
	info := s.CachedInfo()
	return p.memory.saw(slot, generation, last, info.Created, info.State.LastSeq), nil
}

// rolledBack reports that what was remembered of a slot's stream is forgotten.
func (p *puller) rolledBack(slot int, what string, forgotten int) {
	p.lookAtStreams() // what it is now
	stream := p.layout.streamOf(slot)
	p.cfg.Logger.Error("A stream is not the one that it was: it was made again, or its server has lost messages. What was settled of it is forgotten; messages may be handled again.",
		"stream", stream, "seen", what)
	p.reports.post(noteInput{event.Event{Kind: event.StreamRolledBack, Reason: stream, Err: what, Count: forgotten}})
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
		generation := p.memory.generation(shard)
		what, err := p.lookAtStream(p.life, shard)
		pause := pullRetry
		switch {
		case err != nil:
			// It may be deleted, and created again in a moment; or the servers are away.
			try, pause = 0, time.Second
		case what == "":
			return
		case try >= looksToBelieve:
			if forgotten, was := p.memory.forget(shard, generation); was {
				p.rolledBack(shard, what, forgotten)
			}
			try = 0 // what it is now is to be remembered
		}
		select {
		case <-p.life.Done():
		case <-time.After(pause):
		}
	}
}
