package partition

import "github.com/nats-io/nats.go"

// connectionWatch turns what the client reports of its connection into inputs.
type connectionWatch struct {
	nc          *nats.Conn
	status      <-chan nats.Status
	reconnected func() // is called before the machine hears of a new connection
}

func newConnectionWatch(nc *nats.Conn, reconnected func()) connectionWatch {
	status := nc.StatusChanged(nats.CONNECTED, nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	return connectionWatch{nc: nc, status: status, reconnected: reconnected}
}

// pending returns what was reported and not taken yet.
func (c connectionWatch) pending() []input {
	var in []input
	for {
		select {
		case s := <-c.status:
			in = append(in, c.inputs(s)...)
		default:
			return in
		}
	}
}

// inputs reports every disconnect, even one that is over by now: another worker may have
// noticed it. Whether the connection is up now is asked, not read from the status, since
// the client drops statuses when there are too many.
func (c connectionWatch) inputs(s nats.Status) []input {
	var in []input
	if s != nats.CONNECTED {
		in = append(in, connectionInput{up: false})
	}
	if c.nc.IsConnected() {
		if s == nats.CONNECTED {
			c.reconnected()
		}
		in = append(in, connectionInput{up: true})
	}
	return in
}
