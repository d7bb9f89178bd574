package partition

import (
	"context"
	"slices"

	"github.com/nats-io/nats.go"
)

// connectionWatch hears what the client reports of its connection.
//
// Whatever asks a client that reconnects may wait for seconds; interrupts says why. So the
// machine is told of a lost connection before the client is asked anything.
type connectionWatch struct {
	nc          *nats.Conn
	status      <-chan nats.Status
	interrupts  *interrupts
	reconnected func() // is called before the machine hears of a new connection
}

// newConnectionWatch watches until ctx ends. Handlers are interrupted by a goroutine of its own,
// which never waits for the client.
func newConnectionWatch(ctx context.Context, nc *nats.Conn, i *interrupts, reconnected func()) connectionWatch {
	statuses := []nats.Status{nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED}
	// This one first: a loss that only lose hears of would suspend the delivery for good.
	reports := nc.StatusChanged(statuses...)
	losses := nc.StatusChanged(statuses...)
	go func() {
		for {
			select {
			case s := <-losses:
				if isLoss(s) {
					i.lose()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return connectionWatch{nc: nc, status: reports, interrupts: i, reconnected: reconnected}
}

func isLoss(s nats.Status) bool { return s != nats.CONNECTED }

// pending returns what was reported and not taken yet, after what was taken already.
func (c connectionWatch) pending(taken ...nats.Status) []nats.Status {
	for {
		select {
		case s := <-c.status:
			taken = append(taken, s)
			if s == nats.CLOSED {
				return taken
			}
		default:
			return taken
		}
	}
}

// follow gives the machine what was reported, and reports whether the connection was closed
// by its owner.
//
// Every disconnect is told, even one that is over by now: another worker may have noticed it.
// Whether the connection is up now is asked, not read from what was reported, since the client
// drops reports when there are too many. The order matters; see connectionWatch.
func (c connectionWatch) follow(reported []nats.Status, tell func(input)) (closed bool) {
	if len(reported) == 0 {
		return false
	}
	losses := 0
	for _, s := range reported {
		if isLoss(s) {
			losses++
		}
	}
	if len(reported) >= cap(c.status) {
		// Some may have been dropped, of which lose may yet have to hear: no more than the
		// other channel holds, which is as large.
		losses += cap(c.status)
	}
	if losses > 0 {
		// The machine suspends the delivery first. In the other order a handler that was
		// interrupted could return in between, and its message begin again.
		tell(connectionInput{up: false})
		c.interrupts.tell(losses)
	}

	if c.nc.IsClosed() {
		return true
	}
	if c.nc.IsConnected() {
		if slices.Contains(reported, nats.CONNECTED) {
			c.reconnected()
		}
		tell(connectionInput{up: true})
	}
	return false
}
