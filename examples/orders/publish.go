package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
)

const customers = 20

func customer(i int) string { return fmt.Sprintf("customer%d", i%customers) }

// publishOrders publishes orders of all customers in turn. A worker must have been there, so
// that the group has its stream.
func publishOrders(ctx context.Context, conn *nats.Conn, n int) error {
	publisher, err := partition.Open(conn, groupName).Publisher(ctx)
	if err != nil {
		return err
	}
	for i := range n {
		o := order{Number: i / customers, Cents: 100 + i, Class: i % len(discounts)}
		if err := publishOrder(ctx, publisher, customer(i), o); err != nil {
			return err
		}
	}
	return nil
}

// publishOrder publishes an order under an ID of its own, so that it may be published again
// when it is not known whether the servers have it.
func publishOrder(ctx context.Context, p *partition.Publisher, name string, o order) error {
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = p.Publish(ctx, partition.Outgoing{Key: name, Data: data, ID: fmt.Sprintf("%s-%d", name, o.Number)})
	if err != nil {
		return fmt.Errorf("publishing order %d of %s: %w", o.Number, name, err)
	}
	return nil
}
