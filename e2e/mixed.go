package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/local"
)

const (
	mixedName = "mixed-version"

	// casePreviousJoins: a worker of the previous version joins a group of this one.
	casePreviousJoins = "previous-joins"
)

// Bounds of scenario mixed-version.
const (
	mixedJoin    = 30 * time.Second // for a worker of the other version to join, or to refuse
	mixedLeave   = 6 * time.Second  // for a worker to leave
	mixedProcess = 60 * time.Second // for a message of each chamber to be processed
)

func smallMixed(o *Options, chosen func(flag string) bool) {
	suit(chosen, "defenders", &o.Defenders, 6)
	suit(chosen, "chambers", &o.Chambers, 120)
	suit(chosen, "slots", &o.Slots, 60)
	suit(chosen, "rate", &o.Rate, 30)
	suit(chosen, "work", &o.Work, 20*time.Millisecond)
}

func setMixed(o *Options) {
	o.Processes = true
	o.provisionedByPrevious = o.Case == ""
}

// mixed is a run of scenario mixed-version.
type mixed struct {
	*session
	auditor *audit.Auditor
	// processed has, by what had happened, how long it took until a message of each
	// chamber, published after it, was processed.
	processed map[string]time.Duration
	steps     []string // the keys of processed, in order
	refusals  []string // what workers said that did not join
	joined    int
	ledOld    int             // workers of the previous version that one of this version led
	left      []time.Duration // what it took them to leave
	stuck     []string
}

// mixedVersion has workers of the previous version and of this one share a group: one of
// this version joins, or is refused; then a rolling update replaces all, beginning with
// the leader. At each step a message of every chamber has to be processed.
func mixedVersion(ctx context.Context, s *session) error {
	auditor, err := audit.Begin(ctx, s.Conn, s.auditConfig())
	if err != nil {
		return err
	}
	m := &mixed{session: s, auditor: auditor, processed: map[string]time.Duration{}}
	return errors.Join(m.run(ctx), auditor.Close())
}

func (m *mixed) run(ctx context.Context) error {
	first, second := m.o.Previous, ""
	if m.o.Case == casePreviousJoins {
		first, second = "", m.o.Previous
	}
	// A worker of the previous version can't read the map of a leader of this one, so it
	// doesn't see that its slots were given to others, and leaves after this time.
	m.rig.leave = mixedLeave
	m.rig.program = first
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := m.warmUp(ctx); err != nil {
		return err
	}
	old := m.Defenders.Running()
	m.rig.program = second
	if err := m.join(ctx); err != nil {
		return err
	}
	if err := m.eachProcessed(ctx, "a worker of the other version has started"); err != nil {
		return err
	}
	if m.o.Case == "" {
		if err := m.update(ctx, old); err != nil {
			return err
		}
	}
	m.rig.program = ""
	if err := m.eachProcessed(ctx, "the end"); err != nil {
		return err
	}
	if err := m.drain(ctx); err != nil {
		return err
	}
	return m.judge(ctx)
}

// join starts a worker of the other version and waits until it has joined or has ended.
func (m *mixed) join(ctx context.Context) error {
	if err := m.expect(ctx, len(m.Defenders.Running())+1); err != nil {
		return err
	}
	added, err := m.Defenders.Add(ctx, 1)
	if err != nil {
		return err
	}
	w := added[0]
	before := m.View.Latest()
	deadline := time.After(m.Patience(mixedJoin))
	for {
		select {
		case <-w.Done:
			m.refused(w)
			return m.expect(ctx, len(m.Defenders.Running()))
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			m.Say("%s has neither joined nor ended", w.Name)
			m.stuck = append(m.stuck, w.Name+" has neither joined nor ended")
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		if a := m.View.Latest(); a.Version > before.Version && m.View.Stable(m.o.Defenders+1) {
			m.joined++
			m.Say("A worker of the other version has joined: %d defenders STABLE", m.o.Defenders+1)
			return nil
		}
	}
}

// refused notes that a worker has ended by itself, and what it said.
func (m *mixed) refused(w *local.Process) {
	w.Died(time.Now())
	said := "it ended without a word"
	if w.Err != nil {
		said = w.Err.Error()
	}
	m.refusals = append(m.refusals, said)
	m.Say("A worker of the other version has not joined: %s", said)
}

// update replaces the workers of the first version one after the other, always the leader
// as long as that is one of them: so a worker of this version soon leads workers of the
// previous one, which is the harder way round.
func (m *mixed) update(ctx context.Context, old []*local.Process) error {
	all := len(old)
	for len(old) > 0 {
		w := old[0]
		if leader := m.Defenders.byID()[m.View.Latest().Leader.ID]; slices.Contains(old, leader) {
			w = leader
		} else {
			m.ledOld = max(m.ledOld, len(old))
		}
		old = slices.DeleteFunc(old, func(o *local.Process) bool { return o == w })
		at := time.Now()
		w.Stop()
		if err := ended(ctx, []*local.Process{w}, 60*time.Second); err != nil {
			return err
		}
		m.left = append(m.left, time.Since(at))
		if _, err := m.Defenders.Add(ctx, 1); err != nil {
			return err
		}
		what := fmt.Sprintf("%d of %d are replaced", all-len(old), all)
		m.Say("%s; the last one took %.1f s to leave", what, time.Since(at).Seconds())
		if err := m.eachProcessed(ctx, what); err != nil {
			return err
		}
	}
	n := len(m.Defenders.Running())
	if err := m.expect(ctx, n); err != nil {
		return err
	}
	return m.Wait(ctx, 60*time.Second, "all defenders STABLE after the update", func() bool { return m.View.Stable(n) })
}

// eachProcessed publishes a message of each chamber and waits until all are processed. If
// some are not, it notes their slots and continues.
func (m *mixed) eachProcessed(ctx context.Context, after string) error {
	at := time.Now()
	for i := range m.Chambers {
		m.Traffic.publish(i, false)
	}
	if err := m.Wait(ctx, time.Minute, "the messages published", func() bool { return m.Traffic.Ordered() == 0 }); err != nil {
		return err
	}
	target := m.Traffic.published()
	within := m.Patience(mixedProcess)
	for time.Since(at) < within {
		runs, err := m.runs()
		if err != nil {
			return err
		}
		done := map[uint64]bool{}
		for _, r := range runs {
			done[r.seq] = done[r.seq] || r.ok
		}
		target = slices.DeleteFunc(target, func(p publication) bool { return done[p.Seq] })
		if len(target) == 0 {
			m.processed[after] = time.Since(at)
			m.steps = append(m.steps, after)
			m.Say("A message of each chamber is processed %.1f s after it was published: %s", time.Since(at).Seconds(), after)
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	keys := map[string]bool{}
	for _, p := range target {
		keys[p.Key] = true
	}
	m.stuck = append(m.stuck, fmt.Sprintf("%s: %d messages of %d chambers wait", after, len(target), len(keys)))
	m.Say("Not within %v: a message of each chamber processed; %s", within, m.stuck[len(m.stuck)-1])
	return nil
}

func (m *mixed) judge(ctx context.Context) error {
	account, err := m.account(ctx, m.auditor)
	if err != nil {
		return err
	}
	r := m.report
	times := map[string]float64{}
	var longest time.Duration
	for _, what := range m.steps {
		times[what] = seconds(m.processed[what])
		longest = max(longest, m.processed[what])
	}
	r.measure("processed_after_s", times)
	r.measure("joined", m.joined)
	r.measure("refusals", m.refusals)
	r.check("the other version's worker", "joins, or ends with one sentence", m.joined == 1 || len(m.refusals) == 1 && oneSentence(m.refusals[0]), "%s", m.outcome())
	r.check("slots that are stuck", "0", len(m.stuck) == 0, "%d %s", len(m.stuck), strings.Join(m.stuck, "; "))
	r.check("a message of each chamber processed, after each step", "measured", len(m.steps) > 0, "%d steps, the longest %.1f s", len(m.steps), longest.Seconds())
	if m.o.Case == "" {
		left := distribution(m.left)
		r.measure("leave_ms", left)
		// Timed: which worker leads after a leader that leaves is a matter of which is first.
		r.timed("workers of the previous version led by one of this version", "some", m.ledOld > 0, "%d; ms until each had left: %s", m.ledOld, left)
	}
	m.check.account(account)
	m.check.epochs()
	return nil
}

func (m *mixed) outcome() string {
	if m.joined > 0 {
		return "joined"
	}
	return strings.Join(m.refusals, "; ")
}

// oneSentence reports whether a worker's last words are one line that says more than
// that it has ended.
func oneSentence(s string) bool {
	return !strings.Contains(s, "\n") && !strings.Contains(s, "panic") && strings.Contains(s, "muster: ")
}
