package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/examples/internal/program"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// rig has three processes of the program and what a test does with them.
type rig struct {
	t         *testing.T
	nc        *nats.Conn
	group     *partition.Group
	calls     *partition.Caller
	processes []*program.Process
	published int // views of each user
}

func startRig(t *testing.T) *rig {
	t.Helper()
	s := natstest.Start(t, natstest.In(t.TempDir()))
	r := &rig{t: t, nc: natstest.Connect(t, s.URL())}
	r.group = partition.Open(r.nc, groupName)
	built := program.Build(t)
	for range 3 {
		r.processes = append(r.processes, program.Start(t, built, "--nats", s.URL(), "--expected", "3"))
	}
	r.atRest("three workers share the slots", 3)
	var err error
	if r.calls, err = r.group.Caller(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.calls.Close)
	return r
}

// atRest waits until this number of workers has slots, and none moves.
func (r *rig) atRest(what string, workers int) {
	r.t.Helper()
	await.That(r.t, what, func() bool {
		m, err := r.group.Map(r.t.Context())
		if err != nil || m == nil || len(m.Moves) > 0 {
			return false
		}
		owners := make(map[int32]bool)
		for _, owner := range m.Owner {
			owners[owner] = true
		}
		return len(owners) == workers
	})
}

// publish publishes more views of each user.
func (r *rig) publish(each int) {
	r.t.Helper()
	publisher, err := r.group.Publisher(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for range each {
		for i := range users {
			if err := publishView(r.t.Context(), publisher, user(i), view{Number: r.published, Page: "/"}); err != nil {
				r.t.Fatal(err)
			}
		}
		r.published++
	}
}

// check waits until the owner of each user has every view once.
func (r *rig) check() {
	r.t.Helper()
	for i := range users {
		var s session
		await.That(r.t, "the owner has all views of "+user(i), func() (is bool) {
			var err error
			s, err = askSession(r.t.Context(), r.calls, user(i))
			return err == nil && s.Views >= r.published
		})
		if s.Views != r.published || s.Visits != 1 {
			r.t.Errorf("%s has %d views in %d visits, want %d in one", user(i), s.Views, s.Visits, r.published)
		}
	}
}

// printed counts a line over all processes.
func (r *rig) printed(line string) (n int) {
	for _, p := range r.processes {
		n += strings.Count(p.Output(), line)
	}
	return n
}

// drain has a worker give its slots away, or take some again.
func (r *rig) drain(id string, until time.Time) {
	r.t.Helper()
	if _, err := r.group.Drain(r.t.Context(), func(l report.Lease) bool { return l.ID == id }, until); err != nil {
		r.t.Fatal(err)
	}
}

// notMoved returns the events of states that did not move in a planned handoff.
func (r *rig) notMoved() (all []string) {
	r.t.Helper()
	query := event.Query{Kinds: []event.Kind{event.StateNotMoved}}
	if err := r.group.Events(r.t.Context(), query, func(e event.Event) error {
		all = append(all, e.Text())
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return all
}

// TestSessions: three processes have the sessions of 50 users, while these view pages. One worker is
// drained and takes slots again: the sessions move, and nothing is read of the bucket. Then one
// process is killed: its sessions are read of the bucket. Each user has every view once.
func TestSessions(t *testing.T) {
	t.Parallel()
	r := startRig(t)
	r.publish(10)
	r.check()
	read := r.printed("sessions read")
	if moved := r.printed("sessions moved"); read == 0 || moved > 0 {
		t.Errorf("at the start sessions were read %d times and moved %d times", read, moved)
	}

	r.drain("sessions-1", time.Now().Add(time.Hour))
	r.publish(5)
	r.atRest("two workers have the slots of the third", 2)
	r.publish(5)
	r.check()
	moved := r.printed("sessions moved")
	r.drain("sessions-1", time.Time{})
	r.publish(5)
	r.atRest("it has slots again", 3)
	r.publish(5)
	r.check()
	if again := r.printed("sessions read"); again != read || moved == 0 || r.printed("sessions moved") <= moved {
		t.Errorf("sessions moved %d and %d times, and were read %d times again", moved, r.printed("sessions moved")-moved, again-read)
	}

	r.processes[0].Kill()
	r.publish(5)
	r.atRest("two workers have the slots of the killed one", 2)
	r.publish(5)
	r.check()
	if r.printed("sessions read") == read {
		t.Error("nothing was read of the bucket, although a worker was killed")
	}
	for _, what := range r.notMoved() {
		t.Errorf("sessions did not move in a handoff: %s", what)
	}
	for _, p := range r.processes[1:] {
		if !p.Alive() {
			t.Error("a process that was not killed has ended")
		}
	}
}
