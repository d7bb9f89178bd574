package partition

import (
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// Status is what a worker knows of itself at one moment. Slots are those that it pulls for: it
// is their owner by the map, or is handing them off. While the lease is not valid no message
// begins, whatever Slots says; TrustedUntil is when that will be, if nothing renews it.
type Status struct {
	ID           string
	Claim        uint64
	State        state.State
	Leading      bool
	Leader       string // stable ID, "" if unknown
	Version      uint64 // of the assignment map, 0 before the first
	Slots        []int  // that it pulls for
	SlotsOf      int    // in how many the keys are divided, 0 before the first map
	Draining     bool   // gives its slots away and takes none
	Standby      bool   // as many as are wanted have a stable ID; it waits for one
	TrustedUntil time.Time
	LeaseRenewed time.Time // when the last renewal of its lease that succeeded was begun; zero without a lease
	// RefusedSince is since when none of its writes to the group's buckets succeeded,
	// and Refused why the last one failed; zero and empty if it succeeded.
	RefusedSince  time.Time
	Refused       string
	refused       time.Time // since when the servers answer and refuse; zero: they don't
	ActiveWorkers int       // that the leader sees; 0 elsewhere
}

// statusOf returns what a machine knows between two steps.
func statusOf(m *machine) *Status {
	s := &Status{
		ID:            m.self.ID,
		Claim:         m.self.Claim,
		State:         m.state,
		Leading:       m.leaderLease.held,
		Leader:        m.leader.ID,
		Standby:       m.identity.standby,
		Draining:      m.membership.draining(),
		ActiveWorkers: m.lead.roster.peers.len(),
	}

	if m.cur != nil {
		s.Version, s.SlotsOf = m.cur.Version, m.cur.Slots
	}
	if m.lease.valid {
		s.TrustedUntil = m.membership.leaseEnds()
	}
	if m.stage == stageJoined || m.stage == stageLeaving {
		s.LeaseRenewed = m.lease.renewed
	}
	s.RefusedSince, s.Refused, s.refused = m.refusals.since, m.refusals.why, m.refusals.refused

	for slot, st := range m.own.slots {
		if st.phase == phaseHolding || st.phase == phaseReleasing {
			s.Slots = append(s.Slots, slot)
		}
	}
	slices.Sort(s.Slots)
	return s
}

func (s Status) notReady(now time.Time) *unreadiness {
	leaseOver := now.After(s.TrustedUntil)
	switch {
	case !s.RefusedSince.IsZero() && s.State != state.Shutdown && leaseOver:
		return &unreadiness{state: s.State, refused: s.Refused, since: s.RefusedSince}
	case s.State == state.Init, s.State == state.Degraded, s.State == state.Shutdown:
		return &unreadiness{state: s.State}
	case s.State == state.ClaimingID && !s.Standby:
		return &unreadiness{state: s.State}
	}
	return nil
}
