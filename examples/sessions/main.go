// Command sessions counts the visits of each user from the pages that the user views. The worker that
// owns a user has the user's session in memory. When the user moves to another worker, the session
// moves along; after a crash the new owner reads it from a KV bucket. It is an example of state that
// moves with a slot.
//
//	nats-server -js
//	go run ./examples/sessions                      # as often as you like, each in a terminal of its own
//	go run ./examples/sessions --publish 1000       # page views of 50 users
//	go run ./examples/sessions --ask user7          # the session of a user, from its owner
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
)

// groupName names the group of workers; its stable IDs are "sessions-0", "sessions-1" and so on.
const groupName = "sessions"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("sessions ends", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	url := flag.String("nats", nats.DefaultURL, "URL of the NATS servers")
	expected := flag.Int("expected", 0, "how many workers to wait for at the first start; 0: not known, wait 30 s")
	publish := flag.Int("publish", 0, "publish this many page views instead of working")
	ask := flag.String("ask", "", "ask the owner of this user for the session instead of working")
	flag.Parse()

	conn, err := nats.Connect(*url, nats.Name("sessions"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", *url, err)
	}
	defer conn.Close()

	switch {
	case *publish > 0:
		return publishViews(ctx, conn, *publish)
	case *ask != "":
		return printSession(ctx, conn, *ask)
	}
	return work(ctx, conn, *expected)
}

// work joins the group and follows users until ctx ends. Then it hands its users off.
func work(ctx context.Context, conn *nats.Conn, expected int) error {
	known, err := openSessions(ctx, conn)
	if err != nil {
		return err
	}
	worker, err := partition.New(conn, partition.Config{
		Name:    groupName,
		Stream:  "views",
		Subject: "views.*", // the user is the key
		Slots:   64,
		Rebalance: partition.Rebalance{
			Expected: func() int { return expected }, // 0: Group.Expect says it
		},
		Logger: slog.Default(),
	}, known)
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

const users = 50

func user(i int) string { return fmt.Sprintf("user%d", i%users) }

// publishViews publishes page views of all users in turn. A worker must have been there, so that the
// group has its stream.
func publishViews(ctx context.Context, conn *nats.Conn, n int) error {
	publisher, err := partition.Open(conn, groupName).Publisher(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		if err := publishView(ctx, publisher, user(i), view{Number: i / users, Page: fmt.Sprintf("/page%d", i%7)}); err != nil {
			return err
		}
	}
	return nil
}

func publishView(ctx context.Context, p *partition.Publisher, name string, v view) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := p.Publish(ctx, partition.Outgoing{Key: name, Data: data}); err != nil {
		return fmt.Errorf("publishing view %d of %s: %w", v.Number, name, err)
	}
	return nil
}

// printSession asks the owner of a user for the session, and prints it.
func printSession(ctx context.Context, conn *nats.Conn, name string) error {
	calls, err := partition.Open(conn, groupName).Caller(ctx)
	if err != nil {
		return err
	}
	defer calls.Close()
	s, err := askSession(ctx, calls, name)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d views in %d visits, the last of %s at %s\n", name, s.Views, s.Visits, s.Page, s.Seen.Format("15:04:05"))
	return nil
}

// askSession asks the owner of a user for the session. To ask again has no effect, so a call may be
// repeated whatever its error is.
func askSession(ctx context.Context, calls *partition.Caller, name string) (s session, err error) {
	answer, err := calls.Call(ctx, name, nil)
	if err != nil {
		return session{}, err
	}
	if err := json.Unmarshal(answer, &s); err != nil {
		return session{}, fmt.Errorf("decoding the session of %s: %w", name, err)
	}
	return s, nil
}
