// Command twins keeps a twin of each device: the state that the device's readings add up to. The
// worker that owns a device has its twin in memory, and answers questions about it there. It is an
// example of calls to the owner of a key, and of state in memory that moves with the key.
//
//	nats-server -js
//	go run ./examples/twins                       # as often as you like, each in a terminal of its own
//	go run ./examples/twins --publish 1000        # readings of 20 devices
//	go run ./examples/twins --ask device7         # the twin of a device, from its owner
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

// groupName names the group of workers; its stable IDs are "twins-0", "twins-1" and so on.
const groupName = "twins"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("twins ends", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	url := flag.String("nats", nats.DefaultURL, "URL of the NATS servers")
	expected := flag.Int("expected", 0, "how many workers to wait for at the first start; 0: not known, wait 30 s")
	publish := flag.Int("publish", 0, "publish this many readings instead of working")
	ask := flag.String("ask", "", "ask the owner of this device for its twin instead of working")
	flag.Parse()

	conn, err := nats.Connect(*url, nats.Name("twins"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", *url, err)
	}
	defer conn.Close()

	switch {
	case *publish > 0:
		return publishReadings(ctx, conn, *publish)
	case *ask != "":
		return printTwin(ctx, conn, *ask)
	}
	return work(ctx, conn, *expected)
}

// work joins the group and follows devices until ctx ends. Then it hands its devices off.
func work(ctx context.Context, conn *nats.Conn, expected int) error {
	known, err := openTwins(ctx, conn)
	if err != nil {
		return err
	}
	worker, err := partition.New(conn, partition.Config{
		Name:      groupName,
		Stream:    "telemetry",
		Subject:   "telemetry.*", // the device is the key
		Slots:     64,
		Rebalance: partition.Rebalance{Expected: func() int { return expected }},
		Logger:    slog.Default(),
	}, known)
	if err != nil {
		return err
	}
	return worker.Run(ctx)
}

const devices = 20

func device(i int) string { return fmt.Sprintf("device%d", i%devices) }

// publishReadings publishes readings of all devices in turn. A worker must have been there, so
// that the group has its stream.
func publishReadings(ctx context.Context, conn *nats.Conn, n int) error {
	publisher, err := partition.Open(conn, groupName).Publisher(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		r := reading{Number: i / devices, Celsius: 20 + float64(i%7)}
		if err := publishReading(ctx, publisher, device(i), r); err != nil {
			return err
		}
	}
	return nil
}

func publishReading(ctx context.Context, p *partition.Publisher, name string, r reading) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := p.Publish(ctx, partition.Outgoing{Key: name, Data: data}); err != nil {
		return fmt.Errorf("publishing reading %d of %s: %w", r.Number, name, err)
	}
	return nil
}

// printTwin asks the owner of a device for its twin, and prints it.
func printTwin(ctx context.Context, conn *nats.Conn, name string) error {
	calls, err := partition.Open(conn, groupName).Caller(ctx)
	if err != nil {
		return err
	}
	defer calls.Close()
	t, err := askTwin(ctx, calls, name)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d readings, the last %.1f °C, between %.1f and %.1f °C; owner's fence %s\n", name, t.Readings, t.Last, t.Lowest, t.Highest, t.Fence)
	return nil
}

// askTwin asks the owner of a device for its twin. To ask again has no effect, so a call may be
// repeated whatever its error is.
func askTwin(ctx context.Context, calls *partition.Caller, name string) (t twin, err error) {
	answer, err := calls.Call(ctx, name, nil)
	if err != nil {
		return twin{}, err
	}
	if err := json.Unmarshal(answer, &t); err != nil {
		return twin{}, fmt.Errorf("decoding the twin of %s: %w", name, err)
	}
	return t, nil
}
