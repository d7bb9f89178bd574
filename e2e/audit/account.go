package audit

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Account is what became of the messages. What the fields count beyond Messages,
// Stored, DeadLetters, Resent, Poison, Freezes, ZombieStores and ZombieTails is a
// fault; the first few are told in Faults.
type Account struct {
	Messages    int // sequences that the streams gave out
	Unknown     int // of them, those without evidence
	Unconfirmed int // of them, such as were never acknowledged to the publisher; no fault
	Stored      int // messages whose result is stored
	Resent      int // messages of a context that another message was of before
	DeadLetters int // messages that were dead-lettered
	Poison      int // messages that kill their handlers

	Lost            int // neither stored nor dead-lettered, or never processed to its end
	Left            int // still in the stream
	StoredTwice     int // contexts with more than one result, or with a result that changed
	StoredAndDead   int // with a result and a dead letter
	DeadTwice       int // with more than one dead letter
	WronglyDead     int // dead-lettered although nothing is wrong with them
	PoisonStored    int // poison ones with a result
	FromNowhere     int // results of contexts that were not published
	OutOfOrder      int // begun before the one before of the same key was done
	EffectsDisorder int // results stored in another order than that of the stream
	FenceBack       int // results stored under a lower fence than one before of the key
	Concurrent      int // begun while another of the same key was under way
	ZombieEffects   int // results stored by a stale process that was resumed, after its successor had processed a message of the key

	Freezes      int
	ZombieStores int           // results stored by one before any successor had: as if it had stored them before it was stopped
	ZombieTails  int           // processings that a resumed process still had to end while its successor was at work
	ZombieTail   time.Duration // the longest

	Faults []string // the first few, for a person
}

// Clean reports whether there is no fault.
func (a Account) Clean() bool { return len(a.Faults) == 0 }

const maxFaults = 20

func (a *Account) fault(n *int, format string, args ...any) {
	*n++
	a.Faults = tell(a.Faults, format, args...)
}

// tell adds a fault to those that are told, unless there are many.
func tell(faults []string, format string, args ...any) []string {
	if len(faults) >= maxFaults {
		return faults
	}
	return append(faults, fmt.Sprintf(format, args...))
}

func account(e evidence) Account {
	a := Account{Freezes: len(e.freezes)}
	known := a.know(e)
	processed := map[uint64]bool{}
	for _, r := range e.runs {
		processed[r.seq] = processed[r.seq] || r.ok
		if known[r.seq].Key == "" {
			known[r.seq] = Published{Sequence: r.seq, Key: r.key}
		}
	}
	for at, last := range e.last {
		a.Messages += int(last)
		for inStream := uint64(1); inStream <= last; inStream++ {
			seq := inStream*uint64(len(e.last)) + uint64(at)
			if _, ok := known[seq]; !ok {
				a.fault(&a.Unknown, "message %d: there is no evidence of what it was", seq)
			}
		}
	}
	stored := a.results(e, known)
	a.fates(e, known, stored, processed)
	if a.Left = int(e.left); a.Left > 0 {
		a.Faults = append(a.Faults, fmt.Sprintf("%d messages are still in the stream", a.Left))
	}
	a.judgeRuns(e, known)
	return a
}

// know merges what the broker copied and what it acknowledged.
func (a *Account) know(e evidence) map[uint64]Published {
	known := map[uint64]Published{}
	for _, p := range e.captured {
		known[p.Sequence] = p
	}
	confirmed := map[uint64]bool{}
	for _, p := range e.published {
		confirmed[p.Sequence] = true
		if c, ok := known[p.Sequence]; ok && (c.Key != p.Key || c.Context != p.Context) {
			a.fault(&a.Unknown, "message %d: published as %s/%s, stored as %s/%s", p.Sequence, p.Key, p.Context, c.Key, c.Context)
		}
		known[p.Sequence] = p
	}
	poison := map[contextKey]bool{}
	for _, p := range e.published {
		poison[contextKey{p.Key, p.Context}] = poison[contextKey{p.Key, p.Context}] || p.Poison
	}
	for seq, p := range known {
		if !confirmed[seq] {
			a.Unconfirmed++
		}
		// Stored a second time, without the publisher's knowing.
		p.Poison = poison[contextKey{p.Key, p.Context}]
		known[seq] = p
	}
	return known
}

type contextKey struct{ key, context string }

// results checks what is stored: once, unchanged, in order, by nobody who had
// been replaced. It returns the contexts that have a result.
func (a *Account) results(e evidence, known map[uint64]Published) map[contextKey]int {
	first := map[contextKey]uint64{} // sequence of its first message
	for seq, p := range known {
		c := contextKey{p.Key, p.Context}
		if s, ok := first[c]; !ok || seq < s {
			first[c] = seq
		}
	}
	stored := map[contextKey]int{}
	latest := map[string]effect{}
	for _, x := range e.effects {
		c := contextKey{x.key, x.context}
		if x.kind != "stored" {
			a.fault(&a.StoredTwice, "%s/%s: its result was %s", x.key, x.context, x.kind)
			continue
		}
		if stored[c]++; stored[c] > 1 {
			a.fault(&a.StoredTwice, "%s/%s: its result was stored again", x.key, x.context)
		}
		if _, ok := first[c]; !ok {
			a.fault(&a.FromNowhere, "%s/%s: a result of what was not published", x.key, x.context)
		}
		if b, ok := latest[x.key]; ok {
			if first[c] < first[contextKey{b.key, b.context}] {
				a.fault(&a.EffectsDisorder, "%s: %s was stored after %s, which came later", x.key, x.context, b.context)
			}
			if x.under(b) {
				a.fault(&a.FenceBack, "%s: %s was stored under fence %d.%d, after %d.%d", x.key, x.context, x.version, x.claim, b.version, b.claim)
			}
		}
		latest[x.key] = x
		for _, f := range e.freezes {
			if !f.Replaced || x.claim != f.Claim || !x.at.After(f.Resumed) {
				continue
			}
			if !e.succeeded(f, x) {
				a.ZombieStores++
			} else {
				a.fault(&a.ZombieEffects, "%s/%s: stored by a stale process (claim %d) %v after it was resumed", x.key, x.context, f.Claim, x.at.Sub(f.Resumed))
			}
		}
	}
	return stored
}

// succeeded reports whether somebody else had processed a message of a result's key
// before it was stored, since its process was stopped. Until then the store can't
// know of a successor, and nobody can tell the order of the two.
func (e evidence) succeeded(f Freeze, x effect) bool {
	return slices.ContainsFunc(e.runs, func(r run) bool {
		return r.ok && r.key == x.key && r.record != f.Record && r.start.After(f.Stopped) && r.end.Before(x.at)
	})
}

// fates checks that each message came to one end, and the right one.
func (a *Account) fates(e evidence, known map[uint64]Published, stored map[contextKey]int, processed map[uint64]bool) {
	seen := map[contextKey]bool{}
	for _, seq := range slices.Sorted(maps.Keys(known)) {
		p := known[seq]
		c := contextKey{p.Key, p.Context}
		if seen[c] {
			a.Resent++
		}
		seen[c] = true
		if p.Poison {
			a.Poison++
		}
		dead := len(e.dead[seq])
		switch {
		case dead > 1:
			a.fault(&a.DeadTwice, "message %d of %s was dead-lettered %d times", seq, p.Key, dead)
		case dead == 1:
			a.DeadLetters++
			if !p.Poison {
				a.fault(&a.WronglyDead, "message %d of %s (%s) was dead-lettered", seq, p.Key, p.Context)
			}
		}
		switch {
		case p.Poison && stored[c] > 0:
			a.fault(&a.PoisonStored, "message %d of %s kills its handler, and has a result", seq, p.Key)
		case dead > 0 && stored[c] > 0:
			a.fault(&a.StoredAndDead, "message %d of %s has a result and a dead letter", seq, p.Key)
		case dead > 0:
		case stored[c] == 0 && p.Context != "":
			a.fault(&a.Lost, "message %d of %s (%s) has no result", seq, p.Key, p.Context)
		case !processed[seq]:
			a.fault(&a.Lost, "message %d of %s (%s) was never processed to its end", seq, p.Key, p.Context)
		default:
			a.Stored++
		}
	}
}

// judgeRuns checks that no two messages of a key were worked on at a time, and
// that each began when the one before was done.
func (a *Account) judgeRuns(e evidence, known map[uint64]Published) {
	byKey := map[string][]run{}
	for _, r := range e.runs {
		byKey[r.key] = append(byKey[r.key], r)
	}
	order := map[string][]uint64{}
	for _, seq := range slices.Sorted(maps.Keys(known)) {
		order[known[seq].Key] = append(order[known[seq].Key], seq)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		runs := byKey[key]
		slices.SortFunc(runs, func(x, y run) int { return x.start.Compare(y.start) })
		a.overlaps(runs, e)
		a.disorder(key, order[key], runs, e.dead)
	}
}

// signalTime is how long a process may continue after a signal to stop was sent.
const signalTime = 500 * time.Millisecond

// ended returns when a run was over, and what a process that was stopped in the
// middle of it still did when it was resumed: nothing goes on in one that is
// stopped, and the first thing it learns is that it is not the owner any more.
func ended(r run, e evidence) (at, tailFrom, tailTo time.Time) {
	at = r.end
	if at.IsZero() {
		at = time.Unix(1<<40, 0)
		if gone, ok := e.deaths[r.record]; ok {
			at = gone
		}
	}
	for _, f := range e.freezes {
		// A signal takes its time: what was begun shortly after it was sent was
		// begun before it took effect.
		if f.Replaced && f.Record == r.record && r.start.Before(f.Stopped.Add(signalTime)) && at.After(f.Stopped) {
			stopped := f.Stopped
			if r.start.After(stopped) {
				stopped = r.start
			}
			return stopped, f.Resumed, at
		}
	}
	return at, time.Time{}, time.Time{}
}

func (a *Account) overlaps(runs []run, e evidence) {
	var until time.Time
	var by run
	for i, r := range runs {
		if r.start.Before(until) {
			a.fault(&a.Concurrent, "%s: message %d begun in %s at %s, while %d went on in %s until %s", r.key, r.seq, r.record, stamp(r.start), by.seq, by.record, stamp(until))
		}
		at, from, to := ended(r, e)
		if at.After(until) {
			until, by = at, r
		}
		if from.IsZero() {
			continue
		}
		for _, other := range runs[i+1:] {
			if o, _, _ := ended(other, e); other.record != r.record && other.start.Before(to) && o.After(from) {
				a.ZombieTails++
				a.ZombieTail = max(a.ZombieTail, to.Sub(from))
				break
			}
		}
	}
}

func stamp(t time.Time) string { return t.UTC().Format("15:04:05.000") }

func (a *Account) disorder(key string, order []uint64, runs []run, dead map[uint64][]time.Time) {
	begun, done := map[uint64]time.Time{}, map[uint64]time.Time{}
	for _, r := range runs {
		if _, ok := begun[r.seq]; !ok {
			begun[r.seq] = r.start
		}
		if r.ok && !r.end.IsZero() && (done[r.seq].IsZero() || r.end.Before(done[r.seq])) {
			done[r.seq] = r.end
		}
	}
	// A message that is given up is done when its dead letter is stored. It need not have a
	// run that ended: each may have killed its process.
	for _, seq := range order {
		for _, at := range dead[seq] {
			if done[seq].IsZero() || at.Before(done[seq]) {
				done[seq] = at
			}
		}
	}
	for i := 1; i < len(order); i++ {
		start, started := begun[order[i]]
		end, isDone := done[order[i-1]]
		if started && (!isDone || start.Before(end)) {
			a.fault(&a.OutOfOrder, "%s: message %d was begun before %d was done", key, order[i], order[i-1])
		}
	}
}
