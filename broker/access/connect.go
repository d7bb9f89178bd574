package access

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// Connect opens a connection that outlives the server's restarts. url may be several, with
// commas between, or a [ContextURL]. Who it is, and whom it trusts, the environment says: see Variables.
func Connect(url, name string) (*nats.Conn, error) { return ConnectAs(url, name, User{}) }

// ConnectAs is Connect as a user of the server, whatever the environment says. The zero
// User is the environment's.
func ConnectAs(url, name string, user User) (*nats.Conn, error) {
	return connect(url, name, user)
}

// ConnectLater is Connect for a program that has to run also while the servers are away: it returns at once, and goes on trying. A
// refusal by the servers counts as being away, since a user may be added to them later. The error is of the environment or the URL.
func ConnectLater(url, name string) (*nats.Conn, error) {
	return connect(url, name, User{}, nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort())
}

func connect(url, name string, user User, more ...nats.Option) (*nats.Conn, error) {
	servers, lookup, ofContext, err := resolve(url, user.Over(os.LookupEnv))
	if err != nil {
		return nil, err
	}
	known, err := Options(lookup)
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS at %s: %w", url, err)
	}

	nc, err := nats.Connect(servers, append(slices.Concat(known, ofContext, more), nats.Name(name),
		nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, time.Second),
		nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2))...)
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS at %s: %w", url, err)
	}
	return nc, nil
}
