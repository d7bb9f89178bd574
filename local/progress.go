package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition/state"
)

// remainder is what the broker has left of messages that are not processed.
type remainder struct {
	waiting uint64 // in the group's streams and in its retry queue
	dead    uint64 // in the stream of dead letters
}

// tally counts the messages that are processed. It goes by what the broker has left of
// them: a message leaves the broker when it is processed or dead-lettered, and not
// before, whichever defender did it and whether or not that one lives. The defenders'
// own counters end with their processes, so their sum falls short after each kill.
type tally struct {
	atStart remainder
	last    int64
	dead    uint64 // as last read
}

// processed returns how many of the published messages are processed, and of those that
// waited at the start. The number of published ones is to be read before the backlog:
// what is published in between is then taken for waiting, and counts a moment later.
// What is counted once stays counted.
func (t *tally) processed(published int64, now remainder) int64 {
	n := published + int64(t.atStart.waiting+t.atStart.dead) - int64(now.waiting+now.dead)
	t.last, t.dead = max(t.last, n), now.dead
	return t.last
}

// left reads the backlog.
func (c *Stack) left(ctx context.Context) (b remainder, err error) {
	pending, err := c.Pending(ctx)
	if err != nil {
		return b, err
	}
	if b.waiting, err = pending(); err != nil {
		return b, err
	}
	js, err := jetstream.New(c.Conn)
	if err != nil {
		return b, err
	}
	s, err := js.Stream(ctx, defender.DeadStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return b, nil
	}
	if err != nil {
		return b, fmt.Errorf("reading stream %s: %w", defender.DeadStream, err)
	}
	b.dead = s.CachedInfo().State.Msgs
	return b, nil
}

// readPatience bounds the reading of the backlog: while the broker is away the line
// tells what was last known.
const readPatience = 2 * time.Second

// counts returns how many messages were published and processed, and how many dead
// letters there are.
func (c *Stack) counts(ctx context.Context) (published, processed int64, dead uint64) {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	published = c.Traffic.Total.Load()
	now, err := c.left(ctx)
	if err != nil {
		return published, c.tally.last, c.tally.dead
	}
	return published, c.tally.processed(published, now), now.dead
}

// Progress tells every few seconds how things are.
func (c *Stack) Progress(ctx context.Context) {
	const every = 5 * time.Second
	t := time.NewTicker(every)
	defer t.Stop()
	var before int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		published, processed, dead := c.counts(ctx)
		line := fmt.Sprintf("… %d defenders STABLE, %d published (%.0f/s), %d processed", c.View.count(state.Stable), published, float64(published-before)/every.Seconds(), processed)
		if dead > 0 {
			line += fmt.Sprintf(", %d dead-lettered", dead)
		}
		c.Timeline.print(line)
		before = published
	}
}
