package local

import (
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/partition/role"
)

// connections are those of a stack's parts that are no defenders, one for each role. Without
// accounts all have the one that may do everything.
type connections struct {
	url   string
	users *users // of the servers; nil: they have none
	all   *nats.Conn

	mu   sync.Mutex
	open map[role.Role]*nats.Conn
}

func connect(url string, u *users) (*connections, error) {
	all, err := access.ConnectAs(url, "muster up", u.harness())
	if err != nil {
		return nil, err
	}
	return &connections{url: url, users: u, all: all, open: map[role.Role]*nats.Conn{}}, nil
}

// as returns the connection of a role.
func (c *connections) as(r role.Role) (*nats.Conn, error) {
	if c.users == nil {
		return c.all, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if nc := c.open[r]; nc != nil {
		return nc, nil
	}
	nc, err := access.ConnectAs(c.url, "muster up as "+string(r), c.users.of(r))
	if err != nil {
		return nil, err
	}
	c.open[r] = nc
	return nc, nil
}

// own returns a new connection of a role; without accounts it may do everything.
func (c *connections) own(r role.Role, name string) (*nats.Conn, error) {
	if c.users == nil {
		return c.unlimited(name)
	}
	return access.ConnectAs(c.url, name, c.users.of(r))
}

// unlimited returns a new connection that may do everything.
func (c *connections) unlimited(name string) (*nats.Conn, error) {
	return access.ConnectAs(c.url, name, c.users.harness())
}

// close closes all.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range c.open {
		nc.Close()
	}
	c.open = nil
	c.all.Close()
}
