//go:build unix

package partition

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkDelivery measures what one message costs the delivery alone: it comes, its handler
// returns, and the server confirms its acknowledgement. The slot always has as many messages in
// hand as may be in flight, and a handler for each key of these. A confirmation takes as long as a
// quarter of the messages in flight.
//
// cpu-ns/op is the processor time, the garbage collector's included. Compare that where other
// programs run, too.
func BenchmarkDelivery(b *testing.B) {
	for _, inFlight := range []int{64, 256, 1024} {
		for _, keys := range []int{8, 4 * inFlight} {
			b.Run(fmt.Sprintf("inflight=%d/keys=%d", inFlight, keys), func(b *testing.B) {
				l := newDeliveryLoad(b, inFlight, keys)
				for range 8 * inFlight { // until everything that is remembered is full
					l.settleOne()
				}
				b.ReportAllocs()
				before := processorTime(b)
				for b.Loop() {
					l.settleOne()
				}
				b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime returns how long this process has run.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// deliveryLoad keeps a slot as full of messages as it may be. All handlers succeed, the one that was
// called first returns first, and confirmations keep that order.
type deliveryLoad struct {
	t        testing.TB
	d        *delivery
	now      time.Time
	keys     []string
	sequence uint64
	inHand   int
	inFlight int
	calls    []handledInput   // handlers that run
	confirms []confirmedInput // that the server has yet to send
}

func newDeliveryLoad(t testing.TB, inFlight, keys int) *deliveryLoad {
	t.Helper()
	cfg := Config{Name: "g", Stream: "s", Subject: "s.*", Slots: 8, Delivery: Delivery{InFlight: inFlight, MaxHandlers: inFlight}}.resolve()
	l := &deliveryLoad{t: t, now: simEpoch, inFlight: inFlight, d: newDelivery(cfg, newMemoryFor(cfg, 1), &retryCounts{})}
	for i := range keys {
		l.keys = append(l.keys, fmt.Sprintf("tool%03d:chamber%d", i/4, i%4))
	}
	l.d.until = l.now.Add(1000 * time.Hour)
	l.step(validityInput{true})
	l.step(heldInput{place: rigSlot, fence: Fence{1, 1}, handed: true})
	return l
}

func (l *deliveryLoad) step(in deliveryInput) {
	effects := l.d.step(l.now, in)
	for _, e := range effects {
		switch e := e.(type) {
		case handleEffect:
			l.calls = append(l.calls, handledInput{run: e.run, call: e.call})
		case confirmEffect:
			l.confirms = append(l.confirms, confirmedInput{e.run, e.mail.original})
		case askEffect: // of the retry queue, which is empty
			l.sequence++
			l.step(answerInput{e.run, e.number, answer{sequence: l.sequence}})
		}
	}
	l.d.recycle(effects)
}

// come delivers the next message of the stream.
func (l *deliveryLoad) come() {
	l.inHand++
	l.sequence++
	seq := l.sequence
	at := simEpoch.Add(time.Duration(seq) * time.Microsecond)
	number := l.d.slots[rigSlot].order.came + 1
	m := &mail{pin: "p", number: number, behind: 1000, original: original{seq, at.UnixNano()}, finest: rigSlot.slot,
		message: Message{Key: l.keys[seq%uint64(len(l.keys))], Sequence: seq, Published: at}}
	l.step(mailInput{rigSlot, m})
}

// settleOne continues until the server has confirmed one message more.
func (l *deliveryLoad) settleOne() {
	for l.inHand < l.inFlight {
		l.come()
	}
	l.now = l.now.Add(time.Microsecond)
	for len(l.confirms) <= l.inFlight/4 && len(l.calls) > 0 {
		in := l.calls[0]
		l.calls = l.calls[1:]
		l.step(in)
	}
	if len(l.confirms) == 0 {
		l.t.Fatalf("no handler runs, and %d messages are in hand", l.inHand)
	}
	in := l.confirms[0]
	l.confirms = l.confirms[1:]
	l.step(in)
	l.inHand--
}
