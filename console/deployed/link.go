package deployed

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
)

// link is the connection to the NATS servers, which may be away, also at the start.
type link struct {
	nc      *nats.Conn
	contact *console.Contact
}

// errNotConnected says that no server is connected.
var errNotConnected = errors.New("not connected")

// up returns why the connection can't be used, nil if it can.
func (l link) up() error {
	if l.nc.IsConnected() {
		return l.contact.Note(nil)
	}
	err := errNotConnected
	if last := l.nc.LastError(); last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return l.contact.Note(err)
}
