package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// leadership is the leader's work. Its parts are in the order of this list: each uses those
// above it, and tells those below it what happens by an interface of its own.
type leadership struct {
	*core
	up       leaderUser
	election *election
	tuning   *tuning

	roster      roster      // who is there
	maps        mapStore    // the map in its bucket
	takeovers   takeovers   // slots on their way from one owner to the next
	absentees   absentees   // workers of the map that are not there
	incarnation incarnation // fences below those of the handlers' store
	rebalance   rebalance   // when to plan, and what
	probes      probeTurns  // whom to probe next
}

// leaderUser is the worker around the leader's work.
type leaderUser interface {
	// seeMap takes a newer map in.
	seeMap(a *record.Assignment, rev uint64)
	// ownLease returns what this worker writes as its lease.
	ownLease() []byte
}

// connect has the parts know each other.
func (l *leadership) connect(c *core, up leaderUser, e *election, t *tuning) {
	*l = leadership{core: c, up: up, election: e, tuning: t}
	l.roster = roster{core: c, up: l}
	l.maps = mapStore{core: c, up: l}
	l.takeovers = takeovers{core: c, roster: &l.roster, maps: &l.maps}
	l.absentees = absentees{core: c, roster: &l.roster, maps: &l.maps}
	l.incarnation = incarnation{core: c, maps: &l.maps}
	l.rebalance = rebalance{core: c, roster: &l.roster, maps: &l.maps, absentees: &l.absentees, incarnation: &l.incarnation, tuning: t}
	l.reset()
}

// begin is with the election of this worker.
func (l *leadership) begin(inherited suspicion) {
	l.reset()
	l.roster.begin(inherited)
}

// reset forgets everything: another worker leads, or none.
func (l *leadership) reset() {
	l.roster.reset()
	l.maps.reset()
	l.takeovers.reset()
	l.absentees.reset()
	l.incarnation.reset()
	l.rebalance.reset()
}

func (l *leadership) mapTaken() {
	l.roster.watchLeases()
	l.takeovers.due()
}

func (l *leadership) slotsDue() { l.takeovers.due() }

func (l *leadership) mapWritten() { l.absentees.forget() }

// workerJoined opens the stabilization window, or extends it.
func (l *leadership) workerJoined() { l.rebalance.extendWindow() }

// going opens the window for more workers that leave, unless it is open.
func (l *leadership) going() {
	if l.rebalance.leaveAt.IsZero() {
		l.rebalance.leaveAt = l.now.Add(l.cfg.Rebalance.LeaveWindow)
	}
}

func (l *leadership) takesSlotsAgain() { l.rebalance.unbalance() }

func (l *leadership) absent(w record.Process, lease record.Heartbeat) {
	l.absentees.miss(w, lease, false)
}

// listed begins the leader's work: it knows who is there.
func (l *leadership) listed() {
	l.absentees.missingAtSync()
	if w := &l.rebalance.window; w.open() {
		// Only now it is known who else is there.
		if w.cold && !l.roster.coldStart() {
			w.warm(l.now, &l.cfg)
		}
		l.rebalance.tellWindow(w.ends.Sub(w.begun))
	}
	l.rebalance.review()
}

func (l *leadership) rosterChanged() { l.rebalance.review() }

func (l *leadership) mapChanged() { l.rebalance.review() }

func (l *leadership) overtaken() { l.election.stepDown() }

func (l *leadership) ownLease() []byte { return l.up.ownLease() }

func (l *leadership) seeMap(a *record.Assignment, rev uint64) { l.up.seeMap(a, rev) }

func (l *leadership) resign() { l.election.resign() }

// result takes the outcome of an operation of the leader's.
func (l *leadership) result(in kvInput) {
	switch in.purpose {
	case forMapRead:
		l.maps.wasRead(in)
	case forMapHistory:
		l.maps.historyRead(in)
	case forMapWrite:
		l.maps.written(in)
	case forFencing:
		l.roster.fenced(in)
	default:
	}
}

// due does what the time asks of the leader.
func (l *leadership) due() {
	if !l.maps.rereadAt.IsZero() && !l.now.Before(l.maps.rereadAt) {
		l.maps.read()
	}
	l.tuning.refresh()
	if l.election.probeNow() {
		l.probe()
	}
	if l.mayAct() {
		l.roster.expireDue()
		l.roster.fenceDue()
		l.roster.sweepDue()
		l.takeovers.due()
		l.maps.restore()
	}
	if l.maps.writer.isDue(l.now) && !l.rebalance.planning {
		l.maps.flush()
	}
	l.rebalance.review()
}

// probe asks other workers whether their connections are there.
func (l *leadership) probe() {
	if l.now.Before(l.quietUntil) {
		return
	}
	if to := l.probes.next(l.roster.peers.all(), l.now, l.cfg.Lease.Heartbeat); to != nil {
		l.do(probeEffect{to})
	}
}

// suspect takes in that a probe of a worker found that its connection is gone.
func (l *leadership) suspect(peer record.Process) {
	if l.roster.suspect(peer) {
		l.probes.found(l.now)
	}
}

// wake tells when the leader has something to do.
func (l *leadership) wake(sooner func(time.Time)) {
	sooner(l.maps.rereadAt)
	if l.cfg.Rebalance.Weights != nil {
		l.tuning.weights.wake(sooner)
	}
	if l.mayAct() && l.maps.ready && l.roster.synced && l.cur != nil && l.cur.Former != nil && l.cur.Epoch == l.leaderLease.epoch {
		sooner(l.takeovers.resharding.due)
	}
	sooner(l.rebalance.window.ends)
	sooner(l.rebalance.leaveAt)
	l.incarnation.wake(sooner)
	if !l.maps.writer.busy() && !l.rebalance.planning {
		sooner(l.maps.writer.due)
	}
	l.roster.wake(sooner)
	for _, a := range l.absentees.absent {
		if a.until.After(l.now) {
			sooner(a.until)
		}
	}
	l.takeovers.table.wake(sooner)
}

// take takes an input that is about the leader's work.
func (l *leadership) take(in input) {
	switch in := in.(type) {
	case leaseInput:
		l.roster.seeLease(in)
	case leasesSyncedInput:
		if in.watch == l.roster.watches {
			l.roster.leasesSynced(in.age)
		}
	case badMapInput:
		l.maps.seeMalformed(in.rev, in.err)
	case weightsInput:
		l.tuning.read(in)
		l.rebalance.review()
	case plannedInput:
		l.rebalance.planned(in)
	case takenInput:
		l.takeovers.taken(in)
	case fenceReportInput:
		if l.incarnation.fenced(in.report) {
			l.rebalance.review()
		}
	}
}
