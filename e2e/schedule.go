package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const chaosName = "chaos"

// faultKind names a fault of scenario chaos.
type faultKind string

const (
	faultKill       faultKind = "kill"       // kill -9 of a defender
	faultFreeze     faultKind = "freeze"     // SIGSTOP of a defender past its lease, then SIGCONT
	faultLeader     faultKind = "leader"     // kill -9 of the leader while it publishes a map
	faultServer     faultKind = "server"     // kill -9 of one NATS server, and its restart
	faultServers    faultKind = "servers"    // of all of them
	faultStepDown   faultKind = "step-down"  // a stream's leader among the servers steps down
	faultCut        faultKind = "cut"        // a defender's network is cut
	faultDuplicates faultKind = "duplicates" // messages are published again
	faultPoison     faultKind = "poison"     // a message that kills its handler
	faultPower      faultKind = "power"      // one NATS server or all lose power: kill -9, and the disk keeps what was synced
	faultFailing    faultKind = "failing"    // a chamber whose messages fail for a while, queued, and kill -9 of its slot's owner
)

// fault is one entry of a schedule. It begins at its time at the earliest, and
// when the cluster has recovered from the one before.
type fault struct {
	At   time.Duration
	Kind faultKind
	Pick int           // of the victim: its place among those there are, modulo their number
	For  time.Duration // how long it lasts, where it lasts
	Cut  cutMode
}

func (f fault) String() string {
	text := fmt.Sprintf("%5.0f s  %-10s pick %d", f.At.Seconds(), f.Kind, f.Pick)
	if f.For > 0 {
		text += fmt.Sprintf(", for %.1f s", f.For.Seconds())
	}
	if f.Cut != "" {
		text += ", " + string(f.Cut)
	}
	return text
}

type faultCost struct {
	kind faultKind
	cost time.Duration
}

// faultCosts are the costs of the kinds there are: what fails is queued, or isn't; the
// servers' power can be cut, or can't. The kinds that are always there come first, so
// that without the others a seed's schedule stays the same.
func faultCosts(queued, power bool) []faultCost {
	all := slices.Clone(costs)
	if queued {
		all = append(all, faultCost{faultFailing, 20 * time.Second})
	}
	if power {
		all = append(all, faultCost{faultPower, 10 * time.Second})
	}
	return all
}

// costsFor are the costs of the kinds that options ask for.
func costsFor(o Options) []faultCost { return faultCosts(chambersFail(o), o.PowerCuts) }

// costs are about what each kind of fault takes until all is calm again, beside
// its own duration.
var costs = []faultCost{
	{faultKill, 5 * time.Second}, {faultFreeze, 3 * time.Second}, {faultLeader, 8 * time.Second}, {faultServer, 4 * time.Second},
	{faultServers, 8 * time.Second}, {faultStepDown, 2 * time.Second}, {faultCut, 4 * time.Second}, {faultDuplicates, time.Second}, {faultPoison, 12 * time.Second},
}

// chaosSchedule draws the faults of about so much time by a seed. Each kind comes
// once before any comes again; all come once at least, however short the time.
func chaosSchedule(seed uint64, span time.Duration, costs []faultCost) []fault {
	rng := rand.New(rand.NewPCG(seed, 0xc4a05))
	between := func(low, high time.Duration) time.Duration {
		return (low + time.Duration(rng.Int64N(int64(high-low)))).Round(100 * time.Millisecond)
	}
	cuts := []cutMode{cutBoth, cutToServer, cutToClient, cutAndReset}
	var all []fault
	at := time.Duration(0)
	for round := 0; round == 0 || at < span; round++ {
		for _, i := range rng.Perm(len(costs)) {
			if round > 0 && at >= span {
				break
			}
			f := fault{At: at, Kind: costs[i].kind, Pick: rng.IntN(1000)}
			switch f.Kind {
			case faultFreeze:
				f.For = between(8*time.Second, 11*time.Second)
			case faultServer:
				f.For = between(2*time.Second, 6*time.Second)
			case faultServers, faultPower:
				f.For = between(time.Second, 4*time.Second)
			case faultCut:
				// Shorter than a lease, or longer.
				f.Cut = cuts[rng.IntN(len(cuts))]
				if f.For = between(2*time.Second, 4*time.Second); rng.IntN(2) == 0 {
					f.For = between(8*time.Second, 11*time.Second)
				}
			default:
			}
			all = append(all, f)
			at += f.For + costs[i].cost
		}
	}
	return all
}

// chambersFail reports whether chaos has messages of a chamber fail for some 10 s. None of them is
// to be dead-lettered, which takes at most nine attempts.
func chambersFail(o Options) bool { return o.RetryAttempts >= 10 }
