package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/report"
)

// This file shows users the assignment map, whose stored form is internal.

// mapReport returns what a map says. It shares slices with the map, which is not changed once
// it is decoded.
func mapReport(a *record.Assignment) *report.Map {
	m := &report.Map{Version: a.Version, Epoch: a.Epoch, Leader: report.Process(a.Leader),
		Generation: a.Layout, Slots: a.Slots, Resharding: a.Former != nil,
		Workers: make([]report.Process, len(a.Workers)), Owner: a.Owner, Since: a.Since,
		Moves: make(map[int]report.Handoff, len(a.Moves)), Taking: a.Taking}
	for i, w := range a.Workers {
		m.Workers[i] = report.Process(w)
	}
	for slot, move := range a.Moves {
		m.Moves[slot] = report.Handoff(move)
	}
	return m
}

// latestMap reads the assignment map of a group, nil before the first.
func latestMap(ctx context.Context, nc *nats.Conn, group string) (*report.Map, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, fmt.Errorf("reading the assignment map of %s: %w", group, err)
	}
	e, err := kv.Get(ctx, record.AssignmentKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the assignment map of %s: %w", group, err)
	}
	a, err := record.DecodeAssignment(e.Value())
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", group, err)
	}
	return mapReport(a), nil
}

// watchMap sends the map that there is, and then each that is written, until ctx ends. A
// malformed one is left out: the leader reports it.
func watchMap(ctx context.Context, nc *nats.Conn, group string) (<-chan *report.Map, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, fmt.Errorf("watching the assignment map of %s: %w", group, err)
	}
	watch, err := kv.Watch(ctx, record.AssignmentKey, jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("watching the assignment map of %s: %w", group, err)
	}

	maps := make(chan *report.Map)
	go func() {
		defer close(maps)
		defer func() { _ = watch.Stop() }()
		for {
			select {
			case e, ok := <-watch.Updates():
				switch {
				case !ok:
					return
				case e == nil: // the end of what was there before
					continue
				}
				a, err := record.DecodeAssignment(e.Value())
				if err != nil {
					continue
				}
				select {
				case maps <- mapReport(a):
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return maps, nil
}
