package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestPartitionsDeadLetters lists, shows and requeues a message that a worker has given up.
func TestPartitionsDeadLetters(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	nc, err := nats.Connect(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	cfg := partition.Config{Name: "orders", Stream: "ORDERS", Subject: "orders.*", Slots: 4,
		Retry: partition.Retry{Attempts: 2, Delay: 10 * time.Millisecond}}
	cfg.Rebalance.Expected = func() int { return 1 }
	w, err := partition.New(nc, cfg, partition.HandlerFunc(func(context.Context, partition.Message) error { return errors.New("no such account") }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	group := partition.Open(nc, "orders")
	await(t, "the group is provisioned", func() bool { _, err := group.Config(t.Context()); return err == nil })
	await(t, "the message is published", func() bool {
		_, err := nc.Request("orders.a17", []byte("order 1"), time.Second)
		return err == nil
	})
	await(t, "it is given up", func() bool { l, err := group.DeadLetters(t.Context(), 0, 10); return err == nil && len(l) == 1 })

	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		args = append([]string{"partitions", "dead-letters"}, append(args, "--nats", srv.URL(), "--group", "orders")...)
		code, stdout, stderr := muster(args...)
		if code != want {
			t.Fatalf("%v: exit code %d, %s", args, code, stderr)
		}
		return stdout, stderr
	}
	if out, _ := run(command.ExitOK, "list"); !strings.Contains(out, "a17") || !strings.Contains(out, `"no such account"`) {
		t.Errorf("listed: %s", out)
	}
	out, _ := run(command.ExitOK, "list", "--output", "json")
	var rows []struct {
		Number   uint64
		Attempts int
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) != 1 || rows[0].Number != 1 || rows[0].Attempts != 2 {
		t.Fatalf("listed as JSON: %s (%v)", out, err)
	}
	if out, _ := run(command.ExitOK, "show", "1"); !strings.Contains(out, `"order 1"`) || !strings.Contains(out, "orders.a17") {
		t.Errorf("shown: %s", out)
	}
	for _, wrong := range [][]string{{"show", "one"}, {"show"}, {"requeue"}, {"requeue", "1", "--all"}, {"requeue", "0"}, {"list", "--limit", "0"}} {
		run(command.ExitUsage, wrong...)
	}
	if _, said := run(1, "show", "77"); !strings.Contains(said, "no dead letter 77") {
		t.Errorf("one that is not there: %s", said)
	}
	if _, said := run(1, "requeue", "77"); !strings.Contains(said, "no dead letter 77") {
		t.Errorf("one that is not there: %s", said)
	}
	if out, _ := run(command.ExitOK, "requeue", "--all"); !strings.Contains(out, "requeued 1 to orders.a17") {
		t.Errorf("requeued: %s", out)
	}
	await(t, "it is given up again", func() bool {
		l, err := group.DeadLetters(t.Context(), 2, 10)
		return err == nil && len(l) == 1
	})
}
