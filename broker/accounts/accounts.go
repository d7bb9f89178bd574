// Package accounts writes the part of a NATS server's configuration that says who may do
// what: an account of its own for each group of workers, with a user for each role.
package accounts

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// Account is the account of a group.
type Account struct {
	Group partition.Config // Name, Stream, Subject and Shards are needed
	// Permissions returns what a role needs; nil: what partition.Config says.
	Permissions func(partition.Config, role.Role) (role.Permissions, error)
	Roles       []role.Role // of the users; nil: role.All
	// Password returns the password of a user as it stands in the configuration: a text
	// that Quoted has quoted, or a reference such as $NAME to a variable of the server's
	// environment. nil: a reference to Variable(user).
	Password func(user string) string
	// MaxFile and MaxMemory bound what the account's streams keep, added up over all
	// servers; 0: no bound. They are sizes as the servers read them, such as "18GiB".
	MaxFile, MaxMemory string
	// Unlimited names one more user, who may do everything in the account; "": none.
	Unlimited string
}

// Variable returns the environment variable of a user's password: that of
// "defender-worker" is DEFENDER_WORKER_PASSWORD.
func Variable(user string) string {
	return strings.ToUpper(strings.ReplaceAll(user, "-", "_")) + "_PASSWORD"
}

// Quoted returns a text as a configuration's string. It must have no quote and no line
// break.
func Quoted(text string) string { return `"` + text + `"` }

// Config returns the block "accounts" of the servers' configuration.
func (a Account) Config() (string, error) {
	roles := a.Roles
	if roles == nil {
		roles = role.All
	}
	password := a.Password
	if password == nil {
		password = func(user string) string { return "$" + Variable(user) }
	}
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		b.WriteString(strings.Repeat("  ", depth))
		_, _ = fmt.Fprintf(&b, format, args...)
		b.WriteByte('\n')
	}
	line(0, "accounts {")
	line(1, "%s {", Quoted(a.Group.Name))
	if a.MaxFile == "" && a.MaxMemory == "" {
		line(2, "jetstream: enabled")
	} else {
		line(2, "jetstream {")
		for _, limit := range []struct{ name, size string }{{"max_file", a.MaxFile}, {"max_memory", a.MaxMemory}} {
			if limit.size != "" {
				line(3, "%s: %s", limit.name, limit.size)
			}
		}
		line(2, "}")
	}
	if from, to := a.Group.Mapping(); to != "" {
		line(2, "mappings {")
		line(3, "%s: %s", Quoted(from), Quoted(to))
		line(2, "}")
	}
	line(2, "users: [")
	for _, r := range roles {
		p, err := a.permissions(r)
		if err != nil {
			return "", err
		}
		user := a.Group.User(r)
		line(3, "{")
		line(4, "user: %s", Quoted(user))
		line(4, "password: %s", password(user))
		line(4, "permissions {")
		b.WriteString(Rules(p, 5))
		line(4, "}")
		line(3, "}")
	}
	if a.Unlimited != "" {
		line(3, "{ user: %s, password: %s }", Quoted(a.Unlimited), password(a.Unlimited))
	}
	line(2, "]")
	line(1, "}")
	line(0, "}")
	return b.String(), nil
}

func (a Account) permissions(r role.Role) (role.Permissions, error) {
	if a.Permissions != nil {
		return a.Permissions(a.Group, r)
	}
	return a.Group.Permissions(r)
}

// answerWithin is for how long a user may answer a message.
const answerWithin = "5s"

// Rules returns what stands in the block "permissions" of a user, indented.
func Rules(p role.Permissions, depth int) string {
	var b strings.Builder
	indent := strings.Repeat("  ", depth)
	list := func(name string, subjects []string) {
		if len(subjects) == 0 {
			return
		}
		b.WriteString(indent + "  " + name + ": [\n")
		for _, s := range subjects {
			b.WriteString(indent + "    " + strconv.Quote(s) + "\n")
		}
		b.WriteString(indent + "  ]\n")
	}
	rule := func(what string, allow, deny []string) {
		if len(allow) == 0 {
			b.WriteString(indent + what + ": { deny: \">\" }\n")
			return
		}
		b.WriteString(indent + what + " {\n")
		list("allow", allow)
		list("deny", deny)
		b.WriteString(indent + "}\n")
	}
	rule("publish", p.Publish, p.DenyPublish)
	rule("subscribe", p.Subscribe, nil)
	if p.Respond {
		b.WriteString(indent + "allow_responses: { max: 1, expires: " + Quoted(answerWithin) + " }\n")
	}
	return b.String()
}
