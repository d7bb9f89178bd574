package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestUnknownCommand: a typing error ends with 2 and a suggestion, at every level.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"partitions", "statsu"}, `"statsu" is no command of "muster partitions": did you mean "status"?; see "muster partitions --help"`},
		{[]string{"partitions", "statsu", "--output", "json"}, `did you mean "status"?`},
		{[]string{"nodes", "statsu"}, `did you mean "status"?`},
		{[]string{"nodes", "explan"}, `did you mean "explain"?`},
		{[]string{"defender", "rum"}, `did you mean "run"?`},
		{[]string{"defender", "alarms", "lsit", "--limit", "3"}, `"lsit" is no command of "muster defender alarms": did you mean "list"?`},
		{[]string{"defender", "alarms", "akc"}, `did you mean "ack"?`},
		{[]string{"broker", "rnu"}, `did you mean "run"?`},
		{[]string{"broker", "start"}, `"start" is no command of "muster broker"; see`},
		{[]string{"defneder", "run"}, `did you mean "defender"?`},
		{[]string{"partition"}, `did you mean "partitions"?`},
		{[]string{"frobnicate"}, `"frobnicate" is no command of "muster"; see`},
		{[]string{"completion", "tcsh"}, `"tcsh" is no command of "muster completion"`},
		{[]string{"broker", "--nonsense"}, `--nonsense`},
		{[]string{"help", "partitions", "statsu"}, `"statsu" is no command of "muster partitions": did you mean "status"?`},
		{[]string{"help", "defneder"}, `did you mean "defender"?`},
		{[]string{"partitions", "help", "statsu"}, `did you mean "status"?`},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := muster(tt.args...)
			if code != command.ExitUsage || !strings.Contains(stderr, tt.want) || stdout != "" {
				t.Errorf("exit code %d, it said %q and %q; want %d and %q", code, stdout, stderr, command.ExitUsage, tt.want)
			}
		})
	}
	// A group that is new must not be forgotten.
	t.Run("no group of commands accepts any word", func(t *testing.T) {
		t.Parallel()
		checked := 0
		var walk func(cmd *cobra.Command)
		walk = func(cmd *cobra.Command) {
			if cmd.HasSubCommands() {
				checked++
				code, _, stderr := muster(append(strings.Fields(cmd.CommandPath())[1:], "zzzzzz")...)
				if code != command.ExitUsage || !strings.Contains(stderr, `"zzzzzz"`) {
					t.Errorf("%s zzzzzz: exit code %d, it said %q", cmd.CommandPath(), code, stderr)
				}
			}
			for _, below := range cmd.Commands() {
				walk(below)
			}
		}
		walk(completeRoot())
		if checked < 7 {
			t.Errorf("only %d groups were found", checked)
		}
	})
}

// TestHelp: what only asks for help is no error.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"help"}, {"partitions"}, {"partitions", "help"}, {"partitions", "help", "status"}, {"help", "partitions", "status"}, {"defender", "alarms", "--help"}, {"completion", "bash"}} {
		if code, stdout, stderr := muster(args...); code != command.ExitOK || stdout == "" || stderr != "" {
			t.Errorf("%q: exit code %d, it said %q", args, code, stderr)
		}
	}
	if _, stdout, _ := muster("--help"); !strings.Contains(stdout, "completion") {
		t.Errorf("the help doesn't name the command completion: %s", stdout)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if code, stdout, _ := muster("--version"); code != command.ExitOK || !strings.Contains(stdout, "go1.") {
		t.Errorf("--version: exit code %d, it said %q", code, stdout)
	}
}

// TestServerAway: that no server answers is no wrong usage, whichever command finds it.
func TestServerAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{
		{"partitions", "status"}, {"partitions", "events"}, {"partitions", "override", "--list"},
		{"collect", "--store", filepath.Join(dir, "c.db")},
		{"defender", "run", "--store", filepath.Join(dir, "d.db")},
		{"partitions", "dead-letters", "list"}, {"defender", "alarms", "list"},
	} {
		code, _, stderr := muster(append(args, "--nats", "nats://127.0.0.1:1")...)
		if code != command.ExitFailed || !strings.Contains(stderr, "127.0.0.1:1") {
			t.Errorf("%q: exit code %d, want %d; it said %q", args, code, command.ExitFailed, stderr)
		}
	}
}

// TestKeysAndSlots that can't be any of a group are refused.
func TestKeysAndSlots(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	if err := partition.Open(nc, "orders").Provision(t.Context(), partition.Config{Name: "orders", Stream: "ORDERS", Subject: "orders.*.*", Slots: 64}); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (int, string, string) {
		return muster(append(append([]string{"partitions"}, args...), "--group", "orders", "--nats", srv.URL())...)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"override", "nokey", "orders-1"}, `key "nokey" has 1 token, and "orders.*.*" has 2`},
		{[]string{"override", "a:b:c", "orders-1"}, `key "a:b:c" has 3 tokens`},
		{[]string{"override", "64", "orders-1"}, "slot 64 is outside 0 to 63"},
		{[]string{"plan", "--override", "nokey=orders-1"}, `key "nokey" has 1 token`},
		{[]string{"status", "--key", "nokey"}, `key "nokey" has 1 token`},
		{[]string{"events", "--slot", "999"}, "--slot is 999: group orders has 64 slots, give 0 to 63"},
	} {
		if code, stdout, stderr := ask(tt.args...); code != command.ExitUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%q: exit code %d, it said %q and %q; want %d and %q", tt.args, code, stdout, stderr, command.ExitUsage, tt.want)
		}
	}
	for _, args := range [][]string{{"override", "a:b", "orders-1"}, {"override", "a%3Ab:c", "orders-1"}, {"status", "--key", "a:b"}, {"events", "--slot", "0"}, {"events", "--slot", "63"}} {
		if code, _, stderr := ask(args...); code != command.ExitOK && !strings.Contains(stderr, "is not there") {
			t.Errorf("%q: exit code %d, it said %q", args, code, stderr)
		}
	}
}
