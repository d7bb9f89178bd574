package partition

// The server removes a message from the stream when its slot's consumer has the
// acknowledgement. With replicas and under far too much load it has been seen not
// to (nats-server 2.15.2, three replicas, after resets that other entries of the
// consumer's log came in between): the consumer had nothing more to deliver, and
// what it had delivered stayed in the stream for good. Nothing is lost by that,
// but such a message looks like one that waits, it takes up space, and a consumer
// that is made anew later delivers it again, long after its successors.
//
// So the owner of a slot that is silent looks now and then whether its consumer
// says that nothing waits while the first message that is stored stays the same.
// Then it makes the consumer anew, which delivers what is left: what this worker
// has settled is acknowledged again without its handler, and the rest handled,
// maybe once more.

// leftoverLooks is after how many looks at a silent slot the stream is looked at,
// too.
const leftoverLooks = 6
