package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/chamberview"
	"github.com/muster-dev/muster/console/groupview"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/role"
)

// errStarting says that there is nothing to look up yet.
var errStarting = errors.New("the workers are still starting: try again in a moment")

func (s *screen) lookups() console.Lookups {
	return console.Lookups{Key: s.key, Slot: s.slot, AlarmList: s.listAlarms, Run: s.run, Preview: s.preview}
}

// slots returns how many slots there are.
func (s *screen) slots() (int, error) {
	view := s.plane.seen()
	if view == nil {
		return 0, errStarting
	}
	a := view.Latest()
	if a == nil {
		return 0, errStarting
	}
	return a.Slots, nil
}

// key finds a chamber's slot. It takes tool001:chamber1 and tool001.chamber1, as subjects and logs write it.
func (s *screen) key(_ context.Context, text string) (console.Key, error) {
	ch, err := chamberview.ParseKey(text)
	if err != nil {
		return console.Key{}, err
	}
	n, err := s.slots()
	if err != nil {
		return console.Key{}, err
	}
	return console.Key{Key: ch.String(), Slot: partition.SlotOf(n, ch.Tool, ch.Name), Known: slices.Contains(s.plane.Chambers, ch), Tool: ch.Tool, Chamber: ch.Name}, nil
}

func (s *screen) slot(_ context.Context, slot int) (console.Slot, error) {
	n, err := s.slots()
	if err != nil {
		return console.Slot{}, err
	}
	if slot >= n {
		return console.Slot{}, fmt.Errorf("%w: there are slots 0 to %d", console.ErrUnknownTarget, n-1)
	}
	v := console.Slot{Slot: slot, Keys: []string{}}
	for _, ch := range s.plane.Chambers {
		if partition.SlotOf(n, ch.Tool, ch.Name) == slot {
			v.Keys = append(v.Keys, ch.String())
		}
	}
	return v, nil
}

// alarmsListed is how many alarms the console lists at most.
const alarmsListed = 500

func (s *screen) listAlarms(ctx context.Context, all bool) ([]console.Alarm, error) {
	if s.plane.seen() == nil {
		return []console.Alarm{}, nil
	}
	nc, err := s.plane.As(role.Console)
	if err != nil {
		return nil, err
	}
	list, err := defender.ListAlarms(ctx, nc, defender.AlarmListQuery{All: all, Limit: alarmsListed})
	if err != nil {
		return nil, err
	}
	out := []console.Alarm{}
	for _, a := range list {
		out = append(out, chamberview.AlarmOf(a))
	}
	return out, nil
}

// preview plans as muster partitions plan does.
func (s *screen) preview(ctx context.Context, w console.WhatIf) (report.Forecast, error) {
	if s.plane.seen() == nil {
		return report.Forecast{}, errStarting
	}
	nc, err := s.plane.As(role.Console)
	if err != nil {
		return report.Forecast{}, err
	}
	v, err := partition.Open(nc, defender.Group).Inspect(ctx)
	if err != nil {
		return report.Forecast{}, err
	}
	return groupview.Preview(v, w)
}

// run shows one run of a chamber.
func (s *screen) run(ctx context.Context, tool, name, id string) (console.Run, error) {
	if s.plane.seen() == nil {
		return console.Run{}, errStarting
	}
	return chamberview.ReadRun(ctx, s.plane.Store, defender.Chamber{Tool: tool, Name: name}, id)
}
