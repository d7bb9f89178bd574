package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// view is the value of a message.
type view struct {
	Number int    `json:"number"` // of its user's views, from 0
	Page   string `json:"page"`
}

// visitEnds is after how long without a view a visit has ended.
const visitEnds = 30 * time.Minute

// session is what the views of a user add up to.
type session struct {
	Views  int       `json:"views"`
	Visits int       `json:"visits"`
	Page   string    `json:"page"` // that was viewed last
	Seen   time.Time `json:"seen"` // when

	Fence    partition.Fence `json:"fence"`    // of the owner that has written it
	Sequence uint64          `json:"sequence"` // of the last message that it has taken in
}

// with returns the session after a view.
func (s session) with(v view, m partition.Message) session {
	if s.Views == 0 || m.Published.Sub(s.Seen) > visitEnds {
		s.Visits++
	}
	s.Views++
	s.Page, s.Seen = v.Page, m.Published
	s.Fence, s.Sequence = m.Fence, m.Sequence
	return s
}

// owned is a session as its owner has it.
type owned struct {
	Session  session `json:"session"`
	Revision uint64  `json:"revision"` // in the bucket; 0: not there yet
}

// sessions is the worker's handler. It has the sessions of its users in memory, and writes each to a
// KV bucket before the message counts as processed. It reads the bucket only for slots whose sessions
// did not come from their old owner, and for users of whom a write has failed.
//
// The group calls nothing for a slot beside Prepare, Export, Import or Released of that slot, and one
// handler of a user at a time. So the lock is for the maps alone.
type sessions struct {
	kv jetstream.KeyValue

	mu     sync.Mutex
	owned  map[string]owned // by user
	unread map[slot]bool    // whose sessions could not be read
	unsure map[string]bool  // users of whom a write has failed
}

// slot is one of a number of slots.
type slot struct{ of, number int }

func (s slot) has(name string) bool { return partition.SlotOfKey(s.of, name) == s.number }

// slotsOf returns the slots that the group speaks of.
func slotsOf(slots partition.Slots) (all []slot) {
	for _, number := range slots.Slots {
		all = append(all, slot{slots.Of, number})
	}
	return all
}

func openSessions(ctx context.Context, conn *nats.Conn) (*sessions, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	kv, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "sessions", Storage: jetstream.FileStorage})
	if err != nil {
		return nil, fmt.Errorf("opening the sessions: %w", err)
	}
	return &sessions{kv: kv, owned: make(map[string]owned), unread: make(map[slot]bool), unsure: make(map[string]bool)}, nil
}

// Handle takes a view into the session of its user. A message is delivered again if its worker fails
// before it has acknowledged it, so the session says which was the last.
func (s *sessions) Handle(ctx context.Context, m partition.Message) error {
	var v view
	if err := json.Unmarshal(m.Data, &v); err != nil {
		return partition.GiveUp(fmt.Errorf("decoding a view of %s: %w", m.Key, err))
	}
	have, err := s.of(ctx, m.Key)
	if err != nil {
		return err
	}
	if m.Fence.Compare(have.Session.Fence) < 0 {
		return &partition.FencedError{Stored: have.Session.Fence} // another worker has the user by now
	}
	if m.Sequence <= have.Session.Sequence {
		return nil
	}

	next := owned{Session: have.Session.with(v, m)}
	data, err := json.Marshal(next.Session)
	if err != nil {
		return err
	}
	next.Revision, err = s.kv.Update(ctx, m.Key, data, have.Revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.owned, m.Key)
		s.unsure[m.Key] = true // it may have been written all the same
		return partition.Unavailable(fmt.Errorf("writing the session of %s: %w", m.Key, err))
	}
	s.owned[m.Key] = next
	return nil
}

// HandleCall answers a call with the session of its user.
func (s *sessions) HandleCall(ctx context.Context, c partition.Call) ([]byte, error) {
	have, err := s.of(ctx, c.Key)
	if err != nil {
		return nil, err
	}
	return json.Marshal(have.Session)
}

// of returns the session of a user, which is empty for a new one.
func (s *sessions) of(ctx context.Context, name string) (owned, error) {
	s.mu.Lock()
	have, is := s.owned[name]
	read := s.unsure[name]
	for of := range s.unread {
		read = read || of.has(name)
	}
	s.mu.Unlock()
	if is || !read {
		return have, nil
	}

	entry, err := s.kv.Get(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return owned{}, partition.Unavailable(fmt.Errorf("reading the session of %s: %w", name, err))
	default:
		if have, err = decodeOwned(entry); err != nil {
			return owned{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owned[name] = have
	delete(s.unsure, name)
	return have, nil
}

func decodeOwned(entry jetstream.KeyValueEntry) (o owned, err error) {
	if err := json.Unmarshal(entry.Value(), &o.Session); err != nil {
		return owned{}, fmt.Errorf("reading the session of %s: %w", entry.Key(), err)
	}
	o.Revision = entry.Revision()
	return o, nil
}

// Export returns the sessions of a slot, for its next owner.
func (s *sessions) Export(_ context.Context, slots partition.Slots) (io.Reader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.unsure {
		if slots.Has(name) {
			return nil, fmt.Errorf("the last write of the session of %s has failed", name)
		}
	}
	state := make(map[string]owned)
	for name, of := range s.owned {
		if slots.Has(name) {
			state[name] = of
		}
	}
	data, err := json.Marshal(state)
	return bytes.NewReader(data), err
}

// Import takes the sessions of a slot over from its old owner.
func (s *sessions) Import(_ context.Context, slots partition.Slots, state io.Reader) error {
	data, err := io.ReadAll(state) // an error says that it is not all
	if err != nil {
		return err
	}
	come := make(map[string]owned)
	if err := json.Unmarshal(data, &come); err != nil {
		return fmt.Errorf("decoding sessions: %w", err)
	}
	s.replace(slots, come)
	slog.Info("sessions moved", "slot", slots.Slots[0], "sessions", len(come))
	return nil
}

// Prepare reads the sessions of slots that don't come from an old owner: at the start, after a crash,
// and whenever Import fails.
func (s *sessions) Prepare(ctx context.Context, slots partition.Slots) error {
	found, err := s.read(ctx, slots)
	s.replace(slots, found)
	if err != nil {
		// Until it can be read, each user's session is read with the user's next message.
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, of := range slotsOf(slots) {
			s.unread[of] = true
		}
		return err
	}
	slog.Info("sessions read", "slots", len(slots.Slots), "sessions", len(found))
	return nil
}

// read returns the sessions of slots in the bucket.
func (s *sessions) read(ctx context.Context, slots partition.Slots) (map[string]owned, error) {
	entries, err := s.kv.WatchAll(ctx, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("reading sessions: %w", err)
	}
	defer func() { _ = entries.Stop() }()
	found := make(map[string]owned)
	for {
		select {
		case entry := <-entries.Updates():
			if entry == nil { // that was all
				return found, nil
			}
			if !slots.Has(entry.Key()) {
				continue
			}
			if found[entry.Key()], err = decodeOwned(entry); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("reading sessions: %w", ctx.Err())
		}
	}
}

// Released forgets the sessions of users that this worker no longer owns.
func (s *sessions) Released(slots partition.Slots) { s.replace(slots, nil) }

// replace has these sessions of slots in memory, and no others.
func (s *sessions) replace(slots partition.Slots, by map[string]owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.owned, func(name string, _ owned) bool { return slots.Has(name) })
	maps.DeleteFunc(s.unsure, func(name string, _ bool) bool { return slots.Has(name) })
	for _, of := range slotsOf(slots) {
		delete(s.unread, of)
	}
	maps.Copy(s.owned, by)
}
