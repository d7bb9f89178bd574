package partition

import (
	"context"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// mostTakeovers is how many takeovers a leader carries out at a time.
const mostTakeovers = 32

// effectRunner carries the machine's effects out. Each kind belongs to one part; those
// that need the buckets are carried out here. execute is called by the worker's loop, and
// waits for nothing but exitEffect's farewells: what takes time does so in a goroutine of
// its own and comes back as an input.
type effectRunner struct {
	cfg       Config
	buckets   *buckets
	pull      *puller
	peers     *peerLink
	watches   *watches
	callbacks *callbacks
	machine   *machine // as it is after the step that the effects are of
	post      func(input)

	takeovers chan struct{}  // has an element for each takeover under way
	farewells sync.WaitGroup // deletions of this worker's own records, when it leaves
}

func (x *effectRunner) execute(e effect) {
	switch e := e.(type) {
	case kvEffect:
		x.operate(e)
	case shareLoadEffect:
		go x.shareLoad(e)
	case listenEffect:
		x.peers.execute(x.machine.self, e)
		if x.pull.states != nil {
			x.pull.states.listen(e.self)
		}
	case answerEffect, sendEffect, reportFenceEffect, pingEffect, probeEffect:
		x.peers.execute(x.machine.self, e)
	case watchLeasesEffect, watchNamesEffect:
		x.watches.execute(e)
	case weightsEffect, planEffect, prepareEffect, emitEffect:
		x.callbacks.execute(e)
	case holdEffect, releaseEffect, forceEffect, dropEffect, suspendEffect, resumeEffect:
		x.deliver(e)
	case takeEffect:
		go x.take(e)
	case exitEffect:
		x.farewells.Wait()
	}
}

func (x *effectRunner) close() {
	x.pull.close()
	x.watches.close()
	x.peers.close()
}

// deliver changes which slots are pulled for, and whether messages may begin.
func (x *effectRunner) deliver(e effect) {
	switch e := e.(type) {
	case holdEffect:
		if e.handed {
			x.pull.pauses.begin(e.place, time.Now(), e.idle)
		}
		x.pull.hold(e)
	case releaseEffect:
		x.pull.release(e)
	case forceEffect:
		x.pull.force(e.place)
	case dropEffect:
		x.pull.dropSlot(e.place)
	case suspendEffect:
		x.pull.suspend(true)
	case resumeEffect:
		x.pull.trustUntil(x.machine.membership.leaseEnds())
		x.pull.suspend(false)
	}
}

// stepped lets messages begin for as long as the lease is known to last after a step.
func (x *effectRunner) stepped() {
	if x.machine.lease.valid {
		x.pull.trustUntil(x.machine.membership.leaseEnds())
	}
}

func (x *effectRunner) operate(e kvEffect) {
	if e.purpose == forFarewell {
		x.farewells.Add(1)
	}
	go func() {
		in := x.buckets.run(context.Background(), e, x.operationTimeout())
		if e.purpose == forFarewell {
			x.farewells.Done()
		}
		x.post(in)
	}()
}

func (x *effectRunner) operationTimeout() time.Duration { return x.cfg.Lease.TTL / 4 }

// shareLoad writes the load of the slots down for those who look.
func (x *effectRunner) shareLoad(e shareLoadEffect) {
	ctx, cancel := context.WithTimeout(context.Background(), x.operationTimeout())
	defer cancel()
	value := record.Encode(record.Load{Schema: record.Schema, Weights: e.weights, Keys: e.keys})
	if _, err := x.buckets.kvs[x.cfg.bucketMap()].Put(ctx, loadKey, value); err != nil {
		x.cfg.Logger.Warn("The load of the slots can't be written down for those who look.", "err", err)
	}
}

func (x *effectRunner) take(e takeEffect) {
	x.takeovers <- struct{}{}
	defer func() { <-x.takeovers }()
	c := x.pull.consumers
	x.post(takenInput{slot: e.slot, run: e.run, err: c.replace(c.life, e.place, e.retire)})
}
