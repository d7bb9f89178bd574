package partition

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// tokensOf makes a list of tokens of a fuzzer's text, one a line, without what the
// tokens of a subject can't have.
func tokensOf(text string) []string {
	var tokens []string
	for t := range strings.SplitSeq(text, "\n") {
		if checkToken(t) == nil {
			tokens = append(tokens, t)
		}
	}
	return tokens
}

// FuzzKeysOfDifferentTokensDiffer: a key is written in one way, which gives its
// tokens back, and no other key is written so. Two keys that are written alike would
// have two owners.
func FuzzKeysOfDifferentTokensDiffer(f *testing.F) {
	f.Add("a:b\nc", "a\nb:c")
	f.Add("a\nb", "a:b")
	f.Add("a%3Ab\nc", "a:b\nc")
	f.Add("%\n25", "%25")
	f.Add("100%", "100%25")
	f.Add("::\n:", ":\n::")
	f.Add("urn:x:1\n2031-01-02T03:04:05Z", "fe80::1\n%253A")
	f.Fuzz(func(t *testing.T, one, other string) {
		a, b := tokensOf(one), tokensOf(other)
		if len(a) == 0 || len(b) == 0 {
			return
		}
		ka, kb := JoinKey(a...), JoinKey(b...)
		if (ka == kb) != slices.Equal(a, b) {
			t.Errorf("JoinKey(%q) is %q, JoinKey(%q) is %q", a, ka, b, kb)
		}
		if got := SplitKey(ka); !slices.Equal(got, a) {
			t.Errorf("SplitKey(%q) is %q, want %q", ka, got, a)
		}
		if byTokens, byKey := SlotOf(1280, a...), SlotOfKey(1280, ka); byTokens != byKey {
			t.Errorf("%q: slot %d by tokens, %d by key %q", a, byTokens, byKey, ka)
		}
	})
}

// FuzzSlotsAreTheServers: whatever the tokens of a published subject are, nats-server's
// subject transform puts the message where SlotOf says, and its stored subject gives
// back the key and the subject.
func FuzzSlotsAreTheServers(f *testing.F) {
	f.Add("a:b", "c")
	f.Add("a", "b:c")
	f.Add("$1", "{{wildcard(1)}}")
	f.Add("%3A", "\xff\x00")
	f.Add("muster-probe-1", "muster-probe-1")
	p, err := parsePattern("dc.*.*.completion")
	if err != nil {
		f.Fatal(err)
	}
	l := layout{group: "defender", base: 60, pattern: p, stream: "s"}
	transformed := transformer(f, p.subject, l.transform())
	f.Fuzz(func(t *testing.T, one, other string) {
		tooLong := len(one)+len(other) > 1000 // a server refuses a line of more than 4 KB
		if checkToken(one) != nil || checkToken(other) != nil || tooLong {
			return
		}
		published := "dc." + one + "." + other + ".completion"
		stored := transformed(t, published)
		slot, key, back, err := l.parse(stored)
		if err != nil || slot != SlotOf(l.finest(), one, other) || !slices.Equal(key, []string{one, other}) || back != published {
			t.Errorf("%q is stored as %q, which is slot %d, key %q, subject %q, %v; want slot %d", published, stored, slot, key, back, err, SlotOf(l.finest(), one, other))
		}
		at := place{generation{1, 60}, slot % 60}
		if got, want := l.queuedKeySubject(at, JoinKey(key...)), l.queuedSubject(at.slot, stored); got != want {
			t.Errorf("a retry of %q is looked for at %q and stored at %q", published, got, want)
		}
	})
}

// transformer returns what a server stores as the subject of a published message.
func transformer(f *testing.F, from, to string) func(t *testing.T, published string) (stored string) {
	js := startServer(f, natstest.Options{})
	ctx := f.Context()
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "s", Subjects: []string{from}, Storage: jetstream.MemoryStorage, MaxMsgs: 1000,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: from, Destination: to},
	})
	if err != nil {
		f.Fatal(err)
	}
	c, err := js.CreateConsumer(ctx, "s", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true})
	if err != nil {
		f.Fatal(err)
	}

	return func(t *testing.T, published string) string {
		t.Helper()
		if _, err := js.Publish(t.Context(), published, nil); err != nil {
			t.Fatalf("publishing to %q: %v", published, err)
		}
		m, err := c.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatalf("reading what was published to %q: %v", published, err)
		}
		return m.Subject()
	}
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	c := Config{Subject: "dc.*.*.completion"}
	for _, key := range []string{"tool001:chamber1", "a%3Ab:c", "100%:c"} {
		if err := c.CheckKey(key); err != nil {
			t.Errorf("%q is rejected: %v", key, err)
		}
	}
	for key, want := range map[string]string{
		"nokey":      `key "nokey" has 1 token`,
		"a:b:c":      `key "a:b:c" has 3 tokens`,
		"a:":         `token 2 of key "a:" is empty`,
		"a b:c":      `token 1 ("a b") of key "a b:c"`,
		"a:x.y":      `token 2 ("x.y") of key "a:x.y"`,
		"a:>":        `token 2 (">") of key "a:>"`,
		"a\u0000b:*": `token 2 ("*")`,
	} {
		if err := c.CheckKey(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v, want %q", key, err, want)
		}
	}
}

// TestRetrySubjects: the stream of the retry queue and that of the messages must not
// listen to the same subjects; the server refuses the second one then.
func TestRetrySubjects(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, subject string
		ok            bool
	}{
		{"orders", "orders.*.*", true},
		{"orders", "orders.retry.*.*", true},
		{"orders", "*.*", true},
		{"orders", "*.*.*.*.*", false},
		{"orders", "muster.orders.*.*.x", false},
		{"orders", "muster.other.*.*.x", true},
	} {
		c := Config{Name: tt.name, Stream: "ORDERS", Subject: tt.subject, Slots: 64}.resolve()
		_, err := c.validate()
		if (err == nil) != tt.ok {
			t.Errorf("group %s of %s: %v", tt.name, tt.subject, err)
		}
		if err != nil && !strings.Contains(err.Error(), "muster.orders.retry.>") {
			t.Errorf("the error doesn't say what is in the way: %v", err)
		}
	}
}
