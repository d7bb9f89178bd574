package partition

import "time"

// This file holds how a slot keeps the order of its keys with several messages in flight,
// while owners come and go. With one in flight the server keeps it: it delivers the next
// message when the one before is settled. TestConsumerModel shows what the server does with
// several.
//
//  1. An owner begins a message only if it knows every earlier message of the slot: it has it
//     in hand, or knows that it is settled. The server numbers a consumer's deliveries from 1
//     after a reset, which goes back to the first unsettled message. So the owner accepts a
//     delivery only if its number follows the one before. If a number is missing, the message
//     went to another client, such as a former owner whose pull is still open, or was lost with
//     a connection. Then the owner resets the consumer, and every unsettled message comes again.
//  2. The server ignores the acknowledgement of a message that it has not delivered since the
//     last reset. So a message that was begun before the reset is acknowledged when it has come
//     again. The owner drops all others that it had in hand.
//  3. The next message of a key begins when the server has confirmed the acknowledgement of the
//     one before. Without that, an owner that fails could leave the earlier message to be
//     delivered again after the later one was processed.
//  4. A handoff ends with a reset: when every acknowledgement is confirmed, the owner unpins and
//     resets the consumer. The next owner begins at number 1, with the first unsettled message.
//     With replicas a message may still be in the stream when its acknowledgement is confirmed,
//     and a reset would deliver it again. So the owner first handles the messages that it has in
//     hand before it, too.
//  5. The server identifies an acknowledged message by its sequence, which another message may
//     have after the server went back. So an owner whose lease is valid again, or that finds the
//     stream re-created, resets the consumer before it acknowledges anything. It repeats an
//     acknowledgement only if the same message is still in the stream.
//
// A worker's memory of settled messages is exact for those in hand, because a later message of
// another key may be settled first; see watermarks.

// deliveryOrder tracks whether a slot has received every delivery of its consumer since the last
// reset.
type deliveryOrder struct {
	came  uint64    // number of the last delivery received
	lost  bool      // a delivery is missing: the consumer has to be reset
	since time.Time // when the reset became due; zero if none is
	at    time.Time // earliest time of the next attempt to reset

	// wasReset is set from a reset until the slot has had nothing in hand.
	wasReset bool
	lookAt   time.Time // when to ask the server for the number of its last delivery
}

// follows notes the number of a delivery, and reports whether none is missing before it.
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
