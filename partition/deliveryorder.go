package partition

import "time"

// This file holds how a slot keeps the order of its keys with several messages in flight,
// while owners come and go. With one in flight the server does it: it delivers the next
// message when the one before is settled. TestConsumerModel shows what the server does with
// several.
//
//  1. An owner begins a message only if it knows every message of the slot before it: has it
//     in hand, or knows that it is settled. The server numbers what a consumer delivers from 1
//     after a reset, which goes back to the first message that is not settled. So the owner
//     takes a delivery whose number follows that of the one before. If one is missing, it went
//     to somebody else, such as a former owner with a pull that waits yet, or was lost on its
//     way; then the owner resets the consumer, and all comes again.
//  2. The server ignores the acknowledgement of what it has not delivered since the last
//     reset. So a message that was begun before the reset is acknowledged when it has come
//     again. Everything else that was in hand is let go of, and comes again.
//  3. The next message of a key begins when the server has confirmed that the one before is
//     settled. Without that, an owner that fails leaves the one before to be delivered again,
//     after its successor was processed.
//  4. A handoff ends with a reset: when everything settled is confirmed, the owner takes the pin off
//     and resets the consumer. Then the next owner begins at number 1, with what is not settled.
//     With replicas a message may be in the stream yet when it is confirmed as settled, and a
//     reset would deliver it again. So the owner handles what is in hand before it, too.
//  5. The server goes by the sequence of what is acknowledged, and after it went back another
//     message may have that. So an owner whose lease is valid again, or that finds the stream to
//     be another one, resets the consumer before it acknowledges anything; and it sends an
//     acknowledgement again only if the message is in the stream yet.
//
// A worker's memory of what it has settled is exact for the messages in hand, since a later one
// of another key may be settled first; see watermarks.

// deliveryOrder is whether a slot has got all that its consumer has delivered since it was reset.
type deliveryOrder struct {
	came  uint64    // the number of the last delivery that came
	lost  bool      // one went elsewhere: the consumer has to be reset
	since time.Time // when the reset was due; zero: it is not
	at    time.Time // not before

	// wasReset: the consumer was reset, and the slot has had something in hand since then.
	wasReset bool
	lookAt   time.Time // when the server is asked whether it has delivered more
}

// follows takes the number of a delivery in, and reports whether none is missing before it.
func (o *deliveryOrder) follows(number uint64) bool {
	if o.lost || number != o.came+1 {
		o.lost = true
		return false
	}
	o.came = number
	return true
}

// reset follows a reset of the consumer. What was on its way may be taken for what is missing,
// so the next reset has to wait.
func (o *deliveryOrder) reset(now time.Time) {
	*o = deliveryOrder{at: now.Add(pullRetry), lookAt: now.Add(confirmTimeout), wasReset: true}
}

const (
	// removalLag is how long the removal of a settled message may take among replicas: a
	// follower of the stream learns of it with the next entry, or heartbeat, of its leader.
	removalLag = 1500 * time.Millisecond
	// confirmTimeout is when an acknowledgement that was not confirmed is sent again.
	confirmTimeout = time.Second
)

// several reports whether more than one message of a slot may be in flight.
func (d *deliveryCore) several() bool { return d.cfg.Delivery.InFlight > 1 }
