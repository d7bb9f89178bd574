package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// reading is the value of a message.
type reading struct {
	Number  int     `json:"number"` // of its device's readings, from 0
	Celsius float64 `json:"celsius"`
}

// twin is the state of a device.
type twin struct {
	Readings int     `json:"readings"` // how many there were
	Last     float64 `json:"last"`     // °C
	Lowest   float64 `json:"lowest"`
	Highest  float64 `json:"highest"`

	Fence    partition.Fence `json:"fence"`    // of the owner that has written it
	Sequence uint64          `json:"sequence"` // of the last message that it has taken in
}

// with returns the twin after a reading.
func (t twin) with(r reading, m partition.Message) twin {
	if t.Readings == 0 {
		t.Lowest, t.Highest = r.Celsius, r.Celsius
	}
	t.Readings++
	t.Last = r.Celsius
	t.Lowest, t.Highest = min(t.Lowest, r.Celsius), max(t.Highest, r.Celsius)
	t.Fence, t.Sequence = m.Fence, m.Sequence
	return t
}

// twins is the worker's handler. A twin is kept in a KV bucket, and in the memory of the worker
// that owns the device.
//
// The group runs one handler of a device at a time, so a twin needs no lock of its own.
type twins struct {
	kv jetstream.KeyValue

	mu    sync.Mutex
	owned map[string]*ownedTwin // by device
}

// ownedTwin is a twin in memory. It is current as long as its owner keeps the device: under
// another fence another worker may have changed the device in between.
type ownedTwin struct {
	twin     twin
	revision uint64          // in the bucket; 0: not there yet
	fence    partition.Fence // under which it was read
}

func openTwins(ctx context.Context, conn *nats.Conn) (*twins, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "twins", Storage: jetstream.FileStorage})
	if err != nil {
		return nil, fmt.Errorf("opening the twins: %w", err)
	}
	return &twins{kv: kv, owned: make(map[string]*ownedTwin)}, nil
}

// Handle takes a reading into the twin of its device. A message is delivered again if its worker
// fails before it has acknowledged it, so the twin says which was the last.
func (t *twins) Handle(ctx context.Context, m partition.Message) error {
	var r reading
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return partition.GiveUp(fmt.Errorf("decoding a reading of %s: %w", m.Key, err))
	}
	have, err := t.of(ctx, m.Key, m.Fence)
	if err != nil {
		return err
	}
	if m.Sequence <= have.twin.Sequence {
		return nil
	}

	next := have.twin.with(r, m)
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	revision, err := t.kv.Update(ctx, m.Key, data, have.revision)
	if err != nil {
		t.forget(m.Key) // it may have been written all the same
		return partition.Unavailable(fmt.Errorf("writing the twin of %s: %w", m.Key, err))
	}
	have.twin, have.revision = next, revision
	return nil
}

// HandleCall answers a call with the twin of its device.
func (t *twins) HandleCall(ctx context.Context, c partition.Call) ([]byte, error) {
	have, err := t.of(ctx, c.Key, c.Fence)
	if err != nil {
		return nil, err
	}
	return json.Marshal(have.twin)
}

// Released forgets the twins of devices that this worker no longer owns.
func (t *twins) Released(slots partition.Slots) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.owned, func(name string, _ *ownedTwin) bool { return slots.Has(partition.SplitKey(name)...) })
}

// of returns the twin of a device that this worker owns under a fence. It reads the bucket if the
// twin is not in memory, or was read under another fence.
func (t *twins) of(ctx context.Context, name string, fence partition.Fence) (*ownedTwin, error) {
	t.mu.Lock()
	have := t.owned[name]
	t.mu.Unlock()
	if have != nil && have.fence == fence {
		return have, nil
	}

	have = &ownedTwin{fence: fence}
	entry, err := t.kv.Get(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return nil, partition.Unavailable(fmt.Errorf("reading the twin of %s: %w", name, err))
	default:
		if err := json.Unmarshal(entry.Value(), &have.twin); err != nil {
			return nil, fmt.Errorf("reading the twin of %s: %w", name, err)
		}
		have.revision = entry.Revision()
	}
	if fence.Compare(have.twin.Fence) < 0 {
		return nil, &partition.FencedError{Stored: have.twin.Fence} // another worker has the device by now
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.owned[name] = have
	return have, nil
}

// forget has the twin of a device read again.
func (t *twins) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owned, name)
}
