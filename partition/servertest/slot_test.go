package servertest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// slotOfIsTheServersHash publishes keys and reads where the server has put
// them.
func slotOfIsTheServersHash(t *testing.T, on servers) {
	g := startGroup(t, on, 0, func(c *partition.Config) { c.Slots = 60 })
	prefix := strings.TrimSuffix(g.cfg.Subject, "*.*")
	for i := range 200 {
		tokens := []string{fmt.Sprintf("tool%03d", i/3), fmt.Sprintf("Chamber_%c-%d", 'a'+rune(i%26), i)}
		ack, err := g.pub.Publish(t.Context(), prefix+strings.Join(tokens, "."), nil)
		if err != nil {
			t.Fatal(err)
		}
		stream := g.cfg.Streams()[partition.SlotOf(60, tokens...)%max(g.cfg.Shards, 1)]
		if inSource := g.cfg.Source.Stream != ""; !inSource && ack.Stream != stream {
			t.Fatalf("%v is in stream %s, want %s", tokens, ack.Stream, stream)
		}
		s, err := g.pub.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%s.slot.%d.%d.%d.%d.%s", g.cfg.Name, partition.SlotOf(60, tokens...), partition.SlotOf(120, tokens...), partition.SlotOf(240, tokens...),
			partition.SlotOf(480, tokens...), strings.Join(tokens, "."))
		if got := storedSubject(t, s, ack.Sequence); got != want {
			t.Errorf("stored as %q, want %q", got, want)
		}
		if a, b := partition.SlotOf(60, tokens...), partition.SlotOfKey(60, strings.Join(tokens, partition.KeySeparator)); a != b {
			t.Errorf("%v: slot %d by tokens, %d by key", tokens, a, b)
		}
	}
}

func storedSubject(t *testing.T, s jetstream.Stream, seq uint64) string {
	t.Helper()
	for {
		msg, err := s.GetMsg(t.Context(), seq)
		if err == nil {
			return msg.Subject
		}
		// On a cluster any replica answers, and one that is behind has never heard of it.
		if t.Context().Err() != nil || !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Fatal(err)
		}
	}
}
