// Command orders books orders on the accounts of customers. It is an example of what a worker
// has: a handler of typed values, middleware, metrics, readiness, dead letters, and a store
// that rejects the writes of a former owner.
//
//	nats-server -js
//	go run ./examples/orders                       # as often as you like, each in a terminal of its own
//	go run ./examples/orders --publish 1000        # orders of 20 customers
//	go run ./examples/orders --show                # the accounts, and what could not be booked
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitionprom"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("orders ends", "err", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	url := flag.String("nats", nats.DefaultURL, "URL of the NATS servers")
	listen := flag.String("listen", "127.0.0.1:0", "where to serve /metrics and /ready")
	expected := flag.Int("expected", 0, "how many workers to wait for at the first start; 0: not known, wait 30 s")
	publish := flag.Int("publish", 0, "publish this many orders instead of working")
	show := flag.Bool("show", false, "show the accounts instead of working")
	flag.Parse()

	conn, err := nats.Connect(*url, nats.Name("orders"), nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", *url, err)
	}
	defer conn.Close()

	switch {
	case *publish > 0:
		return publishOrders(ctx, conn, *publish)
	case *show:
		return showAccounts(ctx, conn)
	}
	return work(ctx, conn, *listen, *expected)
}

// groupName names the group of workers; its stable IDs are "orders-0", "orders-1" and so on.
const groupName = "orders"

func config(expected int) partition.Config {
	return partition.Config{
		Name:    groupName,
		Stream:  "orders",
		Subject: "orders.*", // the customer is the key
		Slots:   64,
		// An order that fails waits with the later ones of its customer; the other customers go
		// on. After three attempts it becomes a dead letter, and the customer goes on, too.
		Retry:     partition.Retry{Attempts: 3},
		Rebalance: partition.Rebalance{Expected: func() int { return expected }},
		Logger:    slog.Default(),
	}
}

// work joins the group and books orders until ctx ends. Then it hands its customers off.
func work(ctx context.Context, conn *nats.Conn, listen string, expected int) error {
	books, err := openAccounts(ctx, conn)
	if err != nil {
		return err
	}
	handler := partition.Wrap(partition.HandlerOf(books.book, nil), logFailures(slog.Default()))
	worker, err := partition.New(conn, config(expected), handler)
	if err != nil {
		return err
	}
	server, err := serve(ctx, listen, worker)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	return worker.Run(ctx)
}

// logFailures is middleware that logs what a handler fails with.
func logFailures(log *slog.Logger) partition.Middleware {
	return func(next partition.Handler) partition.Handler {
		return partition.HandlerFunc(func(ctx context.Context, m partition.Message) error {
			err := next.Handle(ctx, m)
			if err != nil {
				log.Warn("An order was not booked.", "customer", m.Key, "attempt", m.Attempt, "err", err)
			}
			return err
		})
	}
}

// serve serves the worker's metrics, and whether it takes part in its group.
func serve(ctx context.Context, listen string, worker *partition.Worker) (*http.Server, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(partitionprom.NewCollector(worker, partitionprom.Options{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("GET /ready", worker.ReadyHandler())

	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("serving /metrics and /ready: %w", err)
	}
	slog.Info("Serving /metrics and /ready.", "at", l.Addr())
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("serving ends", "err", err)
		}
	}()
	return s, nil
}

// showAccounts prints every account, and the orders that could not be booked.
func showAccounts(ctx context.Context, conn *nats.Conn) error {
	books, err := openAccounts(ctx, conn)
	if err != nil {
		return err
	}
	for i := range customers {
		a, _, err := books.read(ctx, customer(i))
		if err != nil {
			return err
		}
		fmt.Printf("%-12s %5d orders, %10.2f EUR\n", customer(i), len(a.Orders), float64(a.Cents)/100)
	}
	letters, err := partition.Open(conn, groupName).DeadLetters(ctx, 0, 100)
	if err != nil {
		return err
	}
	for _, l := range letters {
		fmt.Printf("dead letter %d of %s after %d attempts: %s\n", l.Number, l.Key, l.Attempts, l.Err)
	}
	return nil
}
