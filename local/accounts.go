package local

import (
	"bufio"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/broker/accounts"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// harnessUser may do everything. It is what injects faults and what audits: no part of
// Muster is it.
const harnessUser = "harness"

// users are the users of the servers' account, with passwords of their own in each run. A
// nil one stands for servers without accounts.
type users struct {
	group     partition.Config
	passwords map[string]string // by user
}

func newUsers(group partition.Config) *users {
	u := &users{group: group, passwords: map[string]string{}}
	for _, r := range role.All {
		u.passwords[group.User(r)] = newPassword()
	}
	u.passwords[harnessUser] = newPassword()
	return u
}

func newPassword() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

// config returns the block "accounts" of the servers' configuration; "" without accounts.
func (u *users) config() (string, error) {
	if u == nil {
		return "", nil
	}
	return accounts.Account{Group: u.group, Permissions: defender.Permissions, Unlimited: harnessUser,
		Password: func(user string) string { return accounts.Quoted(u.passwords[user]) }}.Config()
}

// of returns the user of a role; the zero one without accounts.
func (u *users) of(r role.Role) access.User {
	if u == nil {
		return access.User{}
	}
	name := u.group.User(r)
	return access.User{Name: name, Password: u.passwords[name]}
}

func (u *users) harness() access.User {
	if u == nil {
		return access.User{}
	}
	return access.User{Name: harnessUser, Password: u.passwords[harnessUser]}
}

// ConnectAll returns a new connection that may do everything.
func (c *Stack) ConnectAll(name string) (*nats.Conn, error) {
	return access.ConnectAs(c.Brokers.URL, name, c.users.harness())
}

// write writes a file for each user below a directory, for the environment of who looks at
// a running up.
func (u *users) write(dir string) error {
	if u == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, "users"), 0o700); err != nil {
		return fmt.Errorf("writing the users' passwords: %w: name another directory with --dir", err)
	}
	for user, password := range u.passwords {
		text := fmt.Sprintf("export NATS_USER=%s NATS_PASSWORD=%s\n", user, password)
		if err := os.WriteFile(u.file(dir, user), []byte(text), 0o600); err != nil {
			return fmt.Errorf("writing the users' passwords: %w: name another directory with --dir", err)
		}
	}
	return nil
}

func (*users) file(dir, user string) string { return filepath.Join(dir, "users", user+".env") }

// connections are those of a cluster's parts that are no defenders, one for each role.
// Without accounts all have the one of the cluster.
type connections struct {
	mu   sync.Mutex
	open map[role.Role]*nats.Conn
}

// As returns the connection of a role.
func (c *Stack) As(r role.Role) (*nats.Conn, error) {
	if c.users == nil {
		return c.Conn, nil
	}
	c.roles.mu.Lock()
	defer c.roles.mu.Unlock()
	if nc := c.roles.open[r]; nc != nil {
		return nc, nil
	}
	nc, err := access.ConnectAs(c.Brokers.URL, "muster up as "+string(r), c.users.of(r))
	if err != nil {
		return nil, err
	}
	if c.roles.open == nil {
		c.roles.open = map[role.Role]*nats.Conn{}
	}
	c.roles.open[r] = nc
	return nc, nil
}

// close closes all.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, nc := range c.open {
		nc.Close()
	}
	c.open = nil
}

// Refusals returns how often the servers refused each request without permission.
func (c *Stack) Refusals() (map[string]int, error) {
	refused := map[string]int{}
	for _, n := range c.Brokers.Servers {
		lines, err := permissionErrors(n.Options.LogFile)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			refused[line]++
		}
	}
	return refused, nil
}

// permissionErrors returns what stands in a server's log of requests without permission.
func permissionErrors(log string) ([]string, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, fmt.Errorf("looking for refused requests: %w", err)
	}
	defer func() { _ = f.Close() }()
	var all []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if _, what, is := strings.Cut(lines.Text(), " Violation - "); is {
			all = append(all, what)
		}
	}
	return all, lines.Err()
}
