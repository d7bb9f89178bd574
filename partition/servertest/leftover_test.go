package servertest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// lookOften has a worker look at the consumers of silent slots every 20 ms rather than every
// 5 s. Users have no need to set that, so it is no exported field, and no function of the
// library is there for this test alone: the field is set by reflection.
func lookOften(c *partition.Config) {
	every := reflect.ValueOf(c).Elem().FieldByName("stalePinCheck")
	reflect.NewAt(every.Type(), unsafe.Pointer(every.UnsafeAddr())).Elem().SetInt(int64(20 * time.Millisecond)) //nolint:gosec // a field of that very type
}

// allConsumers returns all consumers of a group's streams.
func (g *group) allConsumers() (all []*jetstream.ConsumerInfo) {
	g.t.Helper()
	for _, name := range g.cfg.Streams() {
		s, err := g.pub.Stream(g.t.Context(), name)
		if err != nil {
			g.t.Fatal(err)
		}
		for info := range s.ListConsumers(g.t.Context()).Info() {
			all = append(all, info)
		}
	}
	return all
}

// ask calls the JetStream API.
func (g *group) ask(subject string, body any) {
	g.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		g.t.Fatal(err)
	}
	msg, err := g.pub.Conn().Request("$JS.API."+subject, b, await.Patience)
	if err != nil {
		g.t.Fatalf("%s: %v", subject, err)
	}
	if strings.Contains(string(msg.Data), `"error"`) {
		g.t.Fatalf("%s: %s", subject, msg.Data)
	}
}

// healed counts the slots that were healed for a reason.
func (g *group) healed(reason string) (n int) {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	for _, e := range g.rec.events {
		if e.Kind == event.StalePinFreed && e.Reason == reason {
			n++
		}
	}
	return n
}

// A consumer that is reset to beyond the stream's end knows nothing of what is
// stored, as one that has lost count.
func TestMessagesThatTheirConsumerForgotAreProcessed(t *testing.T) {
	onEach(t, func(t *testing.T, on servers) {
		g := startGroup(t, on, 0, lookOften)
		g.publish(20, 3)
		for _, c := range g.allConsumers() {
			g.ask(fmt.Sprintf("CONSUMER.RESET.%s.%s", c.Stream, c.Name), map[string]any{"seq": 1000})
		}
		for _, c := range g.allConsumers() {
			if c.NumPending+uint64(c.NumAckPending) > 0 {
				t.Fatalf("consumer %s still knows of messages", c.Name)
			}
		}
		g.start("w0")
		g.check(0)
		forgotten := g.healed("messages left behind")
		if forgotten == 0 {
			t.Error("no consumer was re-created")
		}
		await.That(t, "nothing left", func() bool {
			for _, name := range g.cfg.Streams() {
				if s, err := g.pub.Stream(t.Context(), name); err != nil || s.CachedInfo().State.Msgs > 0 {
					return false
				}
			}
			return true
		})
		g.publish(20, 3)
		g.check(0)
		time.Sleep(500 * time.Millisecond) // 25 looks at each slot
		if n := g.healed("messages left behind"); n != forgotten {
			t.Errorf("%d consumers that forgot nothing were re-created", n-forgotten)
		}
	})
}

// A pull of somebody who has gone gets the pin, and nobody answers for it.
func TestAStalePinIsTakenOff(t *testing.T) {
	onEach(t, func(t *testing.T, on servers) {
		g := startGroup(t, on, 0, lookOften)
		gone := g.connect("gone")
		sub, err := gone.SubscribeSync("gone.>")
		if err != nil {
			t.Fatal(err)
		}
		consumers := g.allConsumers()
		for _, c := range consumers {
			pull := `{"batch":1,"expires":60000000000,"group":"owner"}`
			if err := gone.PublishRequest(fmt.Sprintf("$JS.API.CONSUMER.MSG.NEXT.%s.%s", c.Stream, c.Name), "gone."+c.Name, []byte(pull)); err != nil {
				t.Fatal(err)
			}
		}
		if err := gone.Flush(); err != nil {
			t.Fatal(err)
		}
		g.publish(20, 3)
		if _, err := sub.NextMsg(await.Patience); err != nil {
			t.Fatalf("the one that goes gets nothing: %v", err)
		}
		gone.Close()
		g.start("w0")
		g.check(0)
		if g.healed("") == 0 {
			t.Error("no pin was taken off")
		}
	})
}
