package partition_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// TestSlotOfIsTheServersHash publishes keys and reads where the server has put
// them.
func TestSlotOfIsTheServersHash(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 0, func(c *partition.Config) { c.Slots = 61 })
	stream, err := g.pub.Stream(t.Context(), g.cfg.Stream)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		tokens := []string{fmt.Sprintf("tool%03d", i/3), fmt.Sprintf("Chamber_%c-%d", 'a'+rune(i%26), i)}
		ack, err := g.pub.Publish(t.Context(), "jobs."+strings.Join(tokens, "."), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("worker.slot.%d.%d.%d.%d.%s", partition.SlotOf(61, tokens...), partition.SlotOf(122, tokens...), partition.SlotOf(244, tokens...),
			partition.SlotOf(488, tokens...), strings.Join(tokens, "."))
		if got := storedSubject(t, stream, ack.Sequence); got != want {
			t.Errorf("stored as %q, want %q", got, want)
		}
		if a, b := partition.SlotOf(61, tokens...), partition.SlotOfKey(61, strings.Join(tokens, partition.KeySeparator)); a != b {
			t.Errorf("%v: slot %d by tokens, %d by key", tokens, a, b)
		}
	}
}

func storedSubject(t *testing.T, s jetstream.Stream, seq uint64) string {
	t.Helper()
	msg, err := s.GetMsg(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	return msg.Subject
}
