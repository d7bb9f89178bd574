package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// order is the value of a message.
type order struct {
	Number int `json:"number"` // of its customer's orders, from 0
	Cents  int `json:"cents"`
	Class  int `json:"class"` // of the customer, which decides on the discount
}

// discounts are by a customer's class, in percent.
var discounts = [...]int{0, 5, 10}

// account is what is kept of a customer.
type account struct {
	Cents  int   `json:"cents"`
	Orders []int `json:"orders"` // numbers of the orders that were booked, in this order

	Fence    partition.Fence `json:"fence"`    // of the owner that has written it
	Sequence uint64          `json:"sequence"` // of the last message that was booked
}

// accounts keeps the accounts in a KV bucket. A write replaces the revision that was read, so of
// two workers that write at the same time one fails.
type accounts struct{ kv jetstream.KeyValue }

func openAccounts(ctx context.Context, conn *nats.Conn) (*accounts, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "accounts", Storage: jetstream.FileStorage})
	if err != nil {
		return nil, fmt.Errorf("opening the accounts: %w", err)
	}
	return &accounts{kv: kv}, nil
}

// book books an order. A message is delivered again if its worker fails before it has
// acknowledged it, so the account says which was the last: booking twice has no effect.
func (a *accounts) book(ctx context.Context, m partition.Message, o order) error {
	have, revision, err := a.read(ctx, m.Key)
	if err != nil {
		return err
	}
	switch {
	case m.Fence.Compare(have.Fence) < 0:
		return &partition.FencedError{Stored: have.Fence} // another worker has the customer by now
	case m.Sequence <= have.Sequence:
		return nil
	}
	have.Cents += o.Cents - o.Cents*discounts[o.Class]/100 // an order of an unknown class panics here
	have.Orders = append(have.Orders, o.Number)
	have.Fence, have.Sequence = m.Fence, m.Sequence
	return a.write(ctx, m.Key, have, revision)
}

// read returns a customer's account and its revision, 0 if it has none yet.
func (a *accounts) read(ctx context.Context, name string) (have account, revision uint64, err error) {
	entry, err := a.kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return account{}, 0, nil
	}
	if err != nil {
		return account{}, 0, fmt.Errorf("reading the account of %s: %w", name, err)
	}
	if err := json.Unmarshal(entry.Value(), &have); err != nil {
		return account{}, 0, fmt.Errorf("reading the account of %s: %w", name, err)
	}
	return have, entry.Revision(), nil
}

func (a *accounts) write(ctx context.Context, name string, what account, revision uint64) error {
	data, err := json.Marshal(what)
	if err != nil {
		return err
	}
	if _, err := a.kv.Update(ctx, name, data, revision); err != nil {
		return fmt.Errorf("writing the account of %s: %w", name, err)
	}
	return nil
}
