// Package e2e checks Muster's worker plane as a whole on one machine: a script of what
// happens to a local stack, and a checker that knows every message that was published and
// every start and end of processing, whatever the defenders themselves say.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/misuse"
)

// A script is one scenario.
type script struct {
	about string
	cases []string
	run   func(ctx context.Context, s *session) error
	set   func(o *Options) // what the scenario needs of the options
	// small gives the options that were not chosen values that suit this scenario.
	small func(o *Options, chosen func(flag string) bool)
}

var scripts = map[string]script{
	"scale-up": {about: "30 defenders become 45", cases: []string{caseBrief, "joining-crash", "partial", "stale-claim"}, run: scaleUp, small: briefly},
	"cold-start": {about: "30 defenders start where none were, with a message waiting for each chamber",
		cases: []string{"joining-crash", "partial", "restart"}, run: coldStart},
	"scale-down": {about: "45 defenders become 30, and those that go hand off first",
		cases: []string{"leader-leaves", "leaving-crash"}, run: scaleDown, set: func(o *Options) { o.Defenders += o.joining() }},
	"leader-crash": {about: "the leader is killed, three times",
		cases: []string{"in-window", "mid-rebalance"}, run: leaderCrash},
	"rolling-update": {about: "every defender is replaced, five at a time, and no chamber moves",
		cases: []string{"surge", "deployment"}, run: rollingUpdate, set: func(o *Options) { o.Expect = true }},
	"broker-outage": {about: "the NATS servers are away for 3 seconds",
		cases: []string{"long", caseOneServer}, run: brokerOutage, set: func(o *Options) { o.ownBroker = true }},
	wipedName: {about: "the NATS server loses its store, or a part of it, or is restored from an older copy; the results are kept",
		cases: []string{caseBuckets, caseStreams, caseCopy, caseRestart, caseCopyRestart}, run: brokerWiped, set: func(o *Options) { o.ownBroker, o.Expect = true, true }, small: smallWiped},
	storageFullName: {about: "a backlog fills the NATS servers' storage; publishers are refused, and it drains by itself",
		run: storageFull, set: func(o *Options) { o.maxStore = smallStore }, small: smallStorage},
	"resharding": {about: "the number of slots is doubled under load",
		cases: []string{"back", "leader-crash"}, run: reshard, small: fewSlots},
	"node-pressure": {about: "more defenders are wanted than the nodes hold; a node comes, and goes again",
		cases: []string{"no-handoff"}, run: nodePressure, set: onNodes},
	"spot-interruption": {about: "a Spot warning takes a node away under load",
		cases: []string{"no-handoff"}, run: spotInterruption, set: onNodes},
	chaosName: {about: "defenders and servers are killed, stopped and cut off for minutes; an auditor accounts for every message",
		run: chaos, set: setChaos, small: smallChaos},
	"load": {about: "traces at a steady rate, or as many as are held: latencies, memory, what the processor does",
		cases: []string{caseStrategies}, run: load, set: func(o *Options) { o.Expect = true }, small: smallLoad},
	leaderGroupName: {about: "the leader and both candidates are killed together, again and again", cases: []string{caseRestarted},
		run: leaderGroupCrash, set: func(o *Options) { o.Processes = true }, small: smallLeaderGroup},
	mixedName: {about: "workers of the previous version and of this one share a group; a rolling update replaces the old ones", cases: []string{casePreviousJoins},
		run: mixedVersion, set: setMixed, small: smallMixed},
	crowdName: {about: "a thousand workers start, a hundred join and leave, 50 are killed at once: times, bytes of map, CPU at rest",
		cases: []string{caseProfiles}, run: crowd, set: setCrowd, small: smallCrowd},
	"crash": {about: "defender processes are killed under load, again and again", run: crash, set: func(o *Options) { o.Processes = true }},
	powerCutName: {about: "the NATS servers lose power under load, again and again, and with it what they have not synced",
		cases: []string{caseOneServer}, run: powerCut, set: onDisks, small: smallPowerCut},
}

// Names returns the names of all scenarios, in order.
func Names() []string { return slices.Sorted(maps.Keys(scripts)) }

// Describe returns a line for each scenario that says what happens in it.
func Describe() string {
	var b strings.Builder
	for _, name := range Names() {
		_, _ = fmt.Fprintf(&b, "  %-27s %s\n", name, scripts[name].about)
	}
	return b.String()
}

// Cases returns the cases of a scenario, none for one that is unknown.
func Cases(name string) []string { return slices.Clone(scripts[name].cases) }

// DescribeCases returns the cases of each scenario that has any.
func DescribeCases() string {
	var all []string
	for _, name := range Names() {
		if cases := scripts[name].cases; len(cases) > 0 {
			all = append(all, name+" "+strings.Join(cases, ", "))
		}
	}
	return strings.Join(all, "; ")
}

// OnNodes returns the names of the scenarios whose defenders run as pods on nodes.
func OnNodes() []string {
	return slices.DeleteFunc(Names(), func(name string) bool {
		var o Options
		if set := scripts[name].set; set != nil {
			set(&o)
		}
		return !o.OnNodes
	})
}

// Suit gives the options that were not chosen, by their flags' names, the values
// that suit a scenario, where those of the flags don't.
func Suit(name string, o *Options, chosen func(flag string) bool) {
	if sc := scripts[name]; sc.small != nil {
		sc.small(o, chosen)
	}
}

// CheckOptions returns what is wrong with asking for a scenario with these options.
func CheckOptions(name string, o Options) error {
	sc, ok := scripts[name]
	if !ok {
		return misuse.Errorf("--scenario %q is unknown: give one of %s", name, strings.Join(Names(), ", "))
	}
	if err := sc.checkCase(name, o.Case); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return &misuse.Error{Err: err}
	}
	for _, check := range []func(string, Options) error{checkParts, checkPowerCuts, checkServers, checkPrevious, checkCrowd} {
		if err := check(name, o); err != nil {
			return err
		}
	}
	return nil
}

func (sc script) checkCase(name, chosen string) error {
	switch {
	case chosen == "" || slices.Contains(sc.cases, chosen):
		return nil
	case len(sc.cases) == 0:
		return misuse.Errorf("--case %q: scenario %s has no cases", chosen, name)
	}
	return misuse.Errorf("--case %q is unknown: scenario %s has %s", chosen, name, strings.Join(sc.cases, ", "))
}

// checkParts reports an option for a part that the scenario does not have.
func checkParts(name string, o Options) error {
	onNodes := OnNodes()
	switch {
	case (o.Lab || o.RealNodes != "") && !slices.Contains(onNodes, name):
		return misuse.Errorf("--lab: scenario %s has no nodes: play %s with it", name, strings.Join(onNodes, " or "))
	case name != loadName && o.Points != 0:
		return misuse.Errorf("--points is for scenario %s: traces are as they are recorded or generated in %s", loadName, name)
	case name == loadName && o.Processes:
		return misuse.Errorf("--processes: scenario %s measures one process: leave it out", loadName)
	}
	return nil
}

func checkServers(name string, o Options) error {
	switch {
	case name == wipedName && o.Servers > 1:
		return misuse.Errorf("--servers is %d: scenario %s wipes the only server, since one of several gets everything back from the others: leave it out", o.Servers, wipedName)
	case o.Case == caseOneServer && o.Servers < 3:
		return misuse.Errorf("--case one-server needs others that continue: give --servers 3 --replicas 3")
	}
	return nil
}

func checkPrevious(name string, o Options) error {
	if (name == mixedName) != (o.Previous != "") {
		return misuse.Errorf("--previous is the muster binary of the version before, for scenario %s, which needs it: build one with git worktree add ../before COMMIT, and go build -o muster-before ./cmd/muster there", mixedName)
	}
	if name != mixedName {
		return nil
	}
	info, err := os.Stat(o.Previous)
	if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return misuse.Errorf("--previous %s is no program: give the muster binary of the version before", o.Previous)
	}
	return nil
}

// Run runs a scenario and returns its report. The error is of what kept it from
// being carried through; failed checks are in the report.
func Run(ctx context.Context, name string, o Options) (*Report, error) {
	if err := CheckOptions(name, o); err != nil {
		return nil, err
	}
	sc := scripts[name]
	o = o.resolve()
	if sc.set != nil {
		sc.set(&o)
	}
	s, err := newSession(ctx, o, name)
	if err != nil {
		return nil, err
	}
	defer func() { s.report.Timeline = s.Timeline.Kept() }()
	s.Say("Broker at %s, everything kept in %s", s.Servers.URL, s.Dir)
	progress, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.Progress(progress) })
	wg.Go(func() { s.TellPauses(progress, false) })
	err = sc.run(ctx, s)
	stop()
	wg.Wait()
	if err == nil && o.Accounts {
		err = checkRefusals(s.report, s.Servers.LogFiles())
	}
	closing := time.Now()
	if closeErr := s.close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	} else {
		s.Say("All stopped in %.1f s", time.Since(closing).Seconds())
	}
	if err != nil {
		return s.report, fmt.Errorf("scenario %s: %w", name, err)
	}
	return s.report, nil
}
