package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/partition/internal/record"
)

// TestAKeysShardIsTheSameInEveryGeneration: whatever the number of slots and of
// streams is, the stream that a publisher chooses is the one that the owner of the
// key's slot reads, before and after every change of the number of slots.
func TestAKeysShardIsTheSameInEveryGeneration(t *testing.T) {
	t.Parallel()
	const subject = "dc.*.x.*.completion"
	r := rand.New(rand.NewPCG(5, 2026))
	for range 2000 {
		shards := 1 + r.IntN(record.MaxShards)
		base := shards * (1 + r.IntN(record.MaxSlots/record.MaxShards))
		lay, err := Config{Name: "defender", Stream: "dc", Subject: subject, Slots: base, Shards: shards}.resolve().validate()
		if err != nil {
			t.Fatal(err)
		}
		key := []string{fmt.Sprintf("tool%d", r.Uint64()), fmt.Sprintf("Ch_%c", 'a'+rune(r.IntN(26)))}
		published := strings.Replace(strings.Replace(subject, "*", key[0], 1), "*", key[1], 1)
		to, err := lay.publish(published)
		if err != nil {
			t.Fatal(err)
		}
		listening := slices.IndexFunc(lay.streams(), func(stream string) bool {
			k := slices.Index(lay.streams(), stream)
			p, err := parsePattern(lay.subject(k))
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.key(to)
			return err == nil && slices.Equal(got, key)
		})
		if listening < 0 {
			t.Fatalf("%d shards: no stream listens to %s", shards, to)
		}
		for i, n := range lay.slotCounts() {
			at := generation{i + 1, n}.place(SlotOf(n, key...))
			if stream := lay.streamOf(at.slot); stream != lay.streams()[listening] {
				t.Fatalf("key %v, %d shards: published to %s, slot %d of %d is in %s", key, shards, lay.streams()[listening], at.slot, n, stream)
			}
			if n%shards != 0 {
				t.Fatalf("%d slots are not evenly spread over %d streams", n, shards)
			}
		}
	}
}

// TestMessagesOfAllStreamsHaveTheirOwnNumbers: what one stream has numbered 5, and
// another too, a handler must be able to tell apart.
func TestMessagesOfAllStreamsHaveTheirOwnNumbers(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{0, 1, 4, 7} {
		c := Config{Stream: "dc", Shards: shards}
		seen := map[uint64]string{}
		for shard, stream := range c.Streams() {
			before := uint64(0)
			for seq := uint64(1); seq < 50; seq++ {
				n, err := c.Sequence(stream, seq)
				if err != nil {
					t.Fatal(err)
				}
				if other, ok := seen[n]; ok || n <= before {
					t.Errorf("%d shards: %s %d is %d, as %s, after %d", shards, stream, seq, n, other, before)
				}
				if slot := shard + 3*max(shards, 1); (layout{shards: shards}).sequence(slot, seq) != n {
					t.Errorf("%d shards: %s %d is %d to its publisher, and another number to the owner of slot %d", shards, stream, seq, n, slot)
				}
				if shards <= 1 && n != seq {
					t.Errorf("one stream: %d is %d", seq, n)
				}
				before, seen[n] = n, fmt.Sprint(stream, " ", seq)
			}
		}
		if _, err := c.Sequence("other", 1); err == nil {
			t.Error("a message of another stream has a number")
		}
	}
}

func TestShardNames(t *testing.T) {
	t.Parallel()
	one, four := testLayout(t), testLayout(t)
	one.stream, four.stream, four.shards = "dc", "dc", 4
	c := Config{Name: "defender", Subject: "dc.*.*.completion", Shards: 4}
	from, to := c.Mapping()
	published, err := c.PublishSubject("dc.tool001.chamber1.completion")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ got, want string }{
		{fmt.Sprintln(one.streams(), one.streamOf(63), one.subject(0)), "[dc] dc dc.*.*.completion\n"},
		{fmt.Sprintln(four.streams(), four.streamOf(63), four.streamOf(64)), "[dc-0 dc-1 dc-2 dc-3] dc-3 dc-0\n"},
		{four.subject(2), "defender.shards.4.2.dc.*.*.completion"},
		{four.address(generation{3, 256}.place(199)), "dc-3.defender-l3-0199"},
		{from + " " + to, "dc.*.*.completion defender.shards.4.{{partition(4,1,2)}}.dc.{{wildcard(1)}}.{{wildcard(2)}}.completion"},
		{published, fmt.Sprintf("defender.shards.4.%d.dc.tool001.chamber1.completion", SlotOf(4, "tool001", "chamber1"))},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
	c.Shards = 1
	if from, to := c.Mapping(); from != "" || to != "" {
		t.Errorf("one stream is mapped from %q to %q", from, to)
	}
	for _, wrong := range []string{"", "dc", "dc.a.b.c", "dc.a.completion", "dc.a..completion", "dc.a.*.completion", "dc.a.b c.completion", "dc.a.b.completion.d"} {
		for _, shards := range []int{1, 4} {
			c.Shards = shards
			if got, err := c.PublishSubject(wrong); err == nil {
				t.Errorf("%q is published to %q with %d shards", wrong, got, shards)
			}
		}
	}
}

func TestShardsThatCantBeAreRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ slots, shards int }{{512, -1}, {512, 3}, {512, 65}, {6400, 100}, {8, 16}} {
		_, err := Config{Name: "defender", Stream: "dc", Subject: "dc.*", Slots: tt.slots, Shards: tt.shards}.resolve().validate()
		if err == nil || !strings.Contains(err.Error(), "\nShards is ") {
			t.Errorf("%d shards of %d slots: error %v", tt.shards, tt.slots, err)
		}
	}
}
