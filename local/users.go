package local

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

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

// write writes a file for each user below a directory, for the environment of a person who looks at
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
