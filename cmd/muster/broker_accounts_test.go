package main

import (
	"strings"
	"testing"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/broker/accounts"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
)

// TestBrokerAccounts/a_command_connects_as_its_role runs a command on a server with the accounts that another writes.
func TestBrokerAccounts(t *testing.T) {
	group := partition.Config{Name: "jobs", Stream: "jobs", Subject: "jobs.*.*"}
	for _, r := range role.All {
		t.Setenv(accounts.Variable(group.User(r)), "p-"+string(r))
	}
	code, text, errs := muster("broker", "accounts", "--group", "jobs", "--stream", "jobs", "--subject", "jobs.*.*")
	if code != command.ExitOK {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	srv, err := broker.Start(broker.Options{Dir: t.TempDir(), Accounts: text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	as := func(r role.Role) {
		t.Setenv("NATS_USER", group.User(r))
		t.Setenv("NATS_PASSWORD", "p-"+string(r))
	}
	as(role.Worker)
	nc, err := access.Connect(srv.URL(), "worker")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := partition.Open(nc, group.Name).Provision(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	t.Run("a command connects as its role", func(t *testing.T) {
		for _, r := range []role.Role{role.Viewer, role.Operator} {
			as(r)
			for _, of := range [][]string{{"status"}, {"reshard"}, {"mapping"}} {
				args := append(append([]string{"partitions"}, of...), "--nats", srv.URL(), "--group", "jobs")
				if code, _, errs := muster(args...); code != command.ExitOK {
					t.Errorf("%v as the %s: exit code %d: %s", args, r, code, errs)
				}
			}
		}
	})
	t.Run("a wrong password is refused", func(t *testing.T) {
		t.Setenv("NATS_USER", "jobs-viewer")
		t.Setenv("NATS_PASSWORD", "wrong-one")
		code, _, errs := muster("partitions", "status", "--nats", srv.URL(), "--group", "jobs")
		if code != command.ExitFailed || !strings.Contains(errs, "Authorization") || strings.Contains(errs, "wrong-one") {
			t.Errorf("exit code %d: %s", code, errs)
		}
	})
}

func TestBrokerAccountsRejectsWrongUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--role", "king"}, "--role \"king\" is unknown"},
		{[]string{"--group", "A.b"}, "Name is"},
		{[]string{"--subject", "dc.>"}, "Subject"},
		{[]string{"--stream", "a b"}, "Stream is"},
		{[]string{"--shards", "65"}, "--shards is 65"},
		{[]string{"--max-file", "much"}, "--max-file is"},
		{[]string{"--max-file", "7GiB", "--role", "viewer"}, "leave out --role"},
	} {
		code, out, errs := muster(append([]string{"broker", "accounts"}, tt.args...)...)
		if code != command.ExitUsage || !strings.Contains(errs, tt.want) || out != "" {
			t.Errorf("%v: exit code %d, %q, %s", tt.args, code, errs, out)
		}
	}
	code, out, _ := muster("broker", "accounts", "--role", "publisher", "--shards", "4")
	if code != command.ExitOK || !strings.Contains(out, `"defender.shards.4.*.dc.*.*.completion"`) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	if code, _, errs := muster("broker", "run", "--dir", t.TempDir(), "--port", "0", "--accounts", "/nowhere/accounts.conf"); code != command.ExitUsage || !strings.Contains(errs, "--accounts") {
		t.Errorf("exit code %d: %s", code, errs)
	}
}
