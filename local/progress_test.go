package local

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/output"
	"github.com/muster-dev/muster/partition/event"
)

// TestTally counts what is processed by what the broker has left.
func TestTally(t *testing.T) {
	t.Parallel()
	var c tally
	c.atStart = remainder{waiting: 5, dead: 2}
	for _, step := range []struct {
		what      string
		published int64
		left      remainder
		want      int64
	}{
		{"at first", 0, remainder{5, 2}, 0},
		{"some are processed", 100, remainder{25, 2}, 80},
		{"one is dead-lettered", 100, remainder{10, 3}, 94},
		{"what was published since its number was read makes nothing less", 100, remainder{30, 3}, 94},
		{"all are processed, and those that waited", 200, remainder{0, 3}, 204},
		{"a dead letter is queued again", 200, remainder{1, 2}, 204},
		{"and processed", 200, remainder{0, 2}, 205},
	} {
		if got := c.processed(step.published, step.left); got != step.want {
			t.Errorf("%s: %d processed, want %d", step.what, got, step.want)
		}
	}
}

// TestProgress: what a defender has processed still counts when it is gone.
func TestProgress(t *testing.T) {
	t.Parallel()
	t.Run("catches up with what was published after a kill", func(t *testing.T) {
		t.Parallel()
		var out output.Buffer
		o := Options{GroupOptions: GroupOptions{Defenders: 3, Chambers: 24, Slots: 12, Expect: true}, TrafficOptions: TrafficOptions{Seed: 1}, Dir: t.TempDir(), Out: &out}
		s, err := Start(t.Context(), o, Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Errorf("stopping: %v", err)
			}
			if t.Failed() {
				t.Log(out.String())
			}
		})
		if _, err := s.Defenders.Add(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all are STABLE", func() bool { return s.View.Stable(3) })
		s.Traffic.Rate.Store(100)
		processed := func() int64 { return s.tally.read(t.Context(), s.Traffic, s.backlog).processed }
		eventually(t, "some are processed", func() bool { return processed() > 50 })
		ended := s.Defenders.Running()[0]
		families, err := ended.Gather()
		if err != nil || Metric(families, "defender_messages_processed_total") == 0 {
			t.Fatalf("the defender to kill has processed nothing, %v", err)
		}
		ended.Kill()
		eventually(t, "the other two have everything", func() bool { return s.View.Stable(2) })
		s.Traffic.Rate.Store(0)
		eventually(t, "everything is processed", func() bool {
			left, err := s.backlog.left(t.Context())
			return err == nil && s.Traffic.Waiting() == 0 && left.waiting == 0
		})
		all := s.tally.read(t.Context(), s.Traffic, s.backlog)
		if all.processed != all.published || all.dead != 0 {
			t.Errorf("%d published, %d processed, %d dead letters", all.published, all.processed, all.dead)
		}
		sum := int64(0)
		for _, p := range s.Defenders.Running() {
			families, err := p.Gather()
			if err != nil {
				t.Fatal(err)
			}
			sum += int64(Metric(families, "defender_messages_processed_total"))
		}
		if sum >= all.published {
			t.Errorf("the living defenders count %d of %d: this test shows nothing", sum, all.published)
		}

		// What is published while the broker does not answer is not shown as if it was left.
		away, cancel := context.WithCancel(t.Context())
		cancel()
		line := s.tally.read(away, s.Traffic, s.backlog).line(2, 0)
		if want := fmt.Sprintf("%d processed as last read: the broker did not answer", all.processed); !strings.Contains(line, want) {
			t.Errorf("without an answer the line is %q, want %q in it", line, want)
		}
		if line := all.line(2, 0); strings.Contains(line, "as last read") {
			t.Errorf("with an answer the line is %q", line)
		}
	})
}

// TestPauses has a clock of its own.
func TestPauses(t *testing.T) {
	t.Parallel()
	start := time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)
	after := func(d time.Duration) time.Time { return start.Add(d) }
	lost := func(worker int, why string) event.Event {
		return event.Event{Kind: event.LeaseUncertain, Worker: fmt.Sprint("defender-", worker), Reason: why}
	}
	back := func(worker int) event.Event {
		return event.Event{Kind: event.LeaseConfirmed, Worker: fmt.Sprint("defender-", worker)}
	}
	t.Run("are told in one line with a count", func(t *testing.T) {
		t.Parallel()
		p := pauses{every: 10 * time.Second, hint: true}
		if got := p.line(start, 30); got != "" {
			t.Errorf("without any it says %q", got)
		}
		for i := range 12 {
			p.event(after(time.Duration(i)*time.Millisecond), lost(i, slowReason))
		}
		want := "12 of 30 defenders paused: no confirmed lease (no round trip within the grace); the machine may be too slow for 30 defenders: try --defenders 6"
		if got := p.line(after(time.Second), 30); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("are told at a bounded rate, and that they are over", func(t *testing.T) {
		t.Parallel()
		p := pauses{every: 10 * time.Second, hint: true}
		var lines []string
		// A minute in which each of 30 defenders pauses every two seconds.
		for ms := range 60_000 {
			at := after(time.Duration(ms) * time.Millisecond)
			if ms%100 == 0 {
				worker := ms / 100 % 30
				p.event(at, lost(worker, slowReason))
				p.event(at, back((worker+15)%30))
			}
			if ms%1000 == 999 {
				if l := p.line(at, 30); l != "" {
					lines = append(lines, l)
				}
			}
		}
		if len(lines) < 2 || len(lines) > 6 {
			t.Errorf("%d lines in a minute: %q", len(lines), lines)
		}
		for i := range 30 {
			p.event(after(time.Minute), back(i))
		}
		for s := range 60 {
			if l := p.line(after(time.Minute+time.Duration(s)*time.Second), 30); l != "" {
				lines = append(lines, l)
			}
		}
		last := lines[len(lines)-1]
		if !strings.HasPrefix(last, "All defenders continue: 600 pauses in 1m") || len(lines) > 7 {
			t.Errorf("at the end it says %q, after %d lines", last, len(lines))
		}
		if l := p.line(after(time.Hour), 30); l != "" {
			t.Errorf("long after the end it says %q", l)
		}
		// The next spell is one of its own.
		p.event(after(2*time.Hour), lost(3, "disconnected"))
		if got, want := p.line(after(2*time.Hour), 30), "defender-3 paused: no confirmed lease (disconnected)"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("of defenders that are gone are over", func(t *testing.T) {
		t.Parallel()
		p := pauses{every: 10 * time.Second}
		p.event(start, lost(1, slowReason))
		p.event(start, lost(2, slowReason))
		p.event(start, lost(3, slowReason))
		p.event(after(time.Second), event.Event{Kind: event.WorkerGone, Worker: "defender-0", Peer: "defender-1"})
		p.event(after(time.Second), event.Event{Kind: event.Left, Worker: "defender-2"})
		p.event(after(2*time.Second), event.Event{Kind: event.IdentityLost, Worker: "defender-3"})
		if got, want := p.line(after(3*time.Second), 1), "All defenders continue: 3 pauses in 3s, at most 3 of 3 defenders at once"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("say nothing of the machine where the broker is away", func(t *testing.T) {
		t.Parallel()
		p := pauses{every: 10 * time.Second, hint: true}
		for i := range 30 {
			p.event(start, lost(i, "disconnected"))
		}
		if got, want := p.line(after(time.Second), 30), "30 of 30 defenders paused: no confirmed lease (disconnected)"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestUp is about what is told before anything runs.
func TestUp(t *testing.T) {
	t.Parallel()
	t.Run("says nothing of a console when the start fails", func(t *testing.T) {
		t.Parallel()
		taken, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it only holds the port
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = taken.Close() })
		for _, o := range []Options{{TrafficOptions: TrafficOptions{Data: "/nonexistent"}}, {BrokerOptions: BrokerOptions{NATSPort: taken.Addr().(*net.TCPAddr).Port}}, {Dir: "/proc/muster"}} {
			var out output.Buffer
			o.Out, o.HTTP, o.Seed = &out, "127.0.0.1:0", 1
			o.Defenders, o.Chambers, o.Slots, o.Rate = 1, 4, 4, 1
			if err := Up(t.Context(), o, Hooks{}); err == nil || strings.Contains(out.String(), "Console") {
				t.Errorf("%+v: error %v, it said %q", o, err, out.String())
			}
		}
	})
	t.Run("names the console once it answers", func(t *testing.T) {
		t.Parallel()
		var out output.Buffer
		o := Options{GroupOptions: GroupOptions{Defenders: 1, Chambers: 4, Slots: 4}, ConsoleOptions: ConsoleOptions{HTTP: "127.0.0.1:0"}, TrafficOptions: TrafficOptions{Seed: 1}, Dir: t.TempDir(), Out: &out}
		s, err := Start(context.Background(), o, Hooks{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(out.String(), "Console: http://127.0.0.1:") {
			t.Errorf("it said %q", out.String())
		}
	})
}
