package local

import (
	"context"
	"fmt"
	"time"
)

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

// readPatience bounds the reading of the backlog: while the broker is away the line
// tells what was last known.
const readPatience = 2 * time.Second

// counts are messages.
type counts struct {
	published, processed int64
	dead                 uint64
	old                  bool // processed and dead are as last read, since the broker did not answer in time
}

// line prints the counts. Old ones are marked, because a reader takes the difference to what is published for a backlog.
func (c counts) line(stable int, publishedPerSecond float64) string {
	line := fmt.Sprintf("… %d defenders STABLE, %d published (%.0f/s), %d processed", stable, c.published, publishedPerSecond, c.processed)
	if c.dead > 0 {
		line += fmt.Sprintf(", %d dead-lettered", c.dead)
	}
	if c.old {
		line += fmt.Sprintf(" as last read: the broker did not answer within %v", readPatience)
	}
	return line
}

// read returns how many messages were published and processed, and how many dead letters
// there are.
func (t *tally) read(ctx context.Context, traffic *Traffic, b *backlog) counts {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	published := traffic.Total()
	now, err := b.left(ctx)
	if err != nil {
		return counts{published: published, processed: t.last, dead: t.dead, old: true}
	}
	return counts{published: published, processed: t.processed(published, now), dead: now.dead}
}
