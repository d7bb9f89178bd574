package partition_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
)

// A worker that takes its share of the orders of all customers. Start as many as
// you like, on as many machines: each customer's orders are handled by one of
// them at a time, in order.
func Example() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL)) // a NATS server 2.15
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()

	ctx, leave := context.WithCancel(context.Background())
	handler := partition.HandlerFunc(func(_ context.Context, m partition.Message) error {
		fmt.Printf("customer %s: %s\n", m.Key, m.Data)
		leave() // enough for an example
		return nil
	})
	config := partition.Config{Name: "orders", Stream: "orders", Subject: "orders.*", Slots: 16, Rebalance: partition.Rebalance{Expected: func() int { return 1 }}}
	if err := partition.Open(nc, config.Name).Provision(ctx, config); err != nil {
		fmt.Println(err)
		return
	}
	worker, err := partition.New(nc, config, handler)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = nc.Publish("orders.alice", []byte("two apples"))
	if err := worker.Run(ctx); err != nil { // until ctx ends; hands off and leaves
		fmt.Println(err)
	}
}

// An operator's view of a group: how many messages wait, and which worker has what.
func ExampleGroup_Inspect() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()

	view, err := partition.Open(nc, "orders").Inspect(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	shown := view.Report()
	fmt.Printf("%s is %s, %d messages wait\n", shown.Group, shown.State, shown.Pending)
	for _, w := range shown.Workers {
		fmt.Printf("%s has %d slots\n", w.ID, w.Slots)
	}
}

// A worker leaves its slots to others while it is maintained. The time bounds the drain, so
// that the worker takes slots again even if nothing ends it.
func ExampleGroup_Drain() {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()

	one := func(m partition.MemberInfo) bool { return m.ID == "orders-3" }
	left, err := partition.Open(nc, "orders").Drain(context.Background(), one, time.Now().Add(10*time.Minute))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("slots left:", left["orders-3"])
}
