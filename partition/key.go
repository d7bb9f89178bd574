package partition

import (
	"hash/fnv"
	"slices"
	"strings"
)

// KeySeparator stands between the tokens of a key: "tool001:chamber1".
const KeySeparator = ":"

// A token may have the separator in it, as URNs, IPv6 addresses and times do. Written
// as it is, "a:b" and "c" would be the same key as "a" and "b:c", which is in another
// slot: one key with two owners. So a separator within a token is escaped, and the
// character that begins an escape is, too. Most tokens have neither.
var (
	escapeToken   = strings.NewReplacer("%", "%25", KeySeparator, "%3A")
	unescapeToken = strings.NewReplacer("%25", "%", "%3A", KeySeparator)
)

// JoinKey writes a key: its tokens with KeySeparator between them. Within a token ":"
// is written "%3A" and "%" is written "%25", so that keys of different tokens are
// never written alike. Message.Key, Config.Rebalance.Weights and Override.Key have keys in this form.
func JoinKey(tokens ...string) string {
	size := len(tokens)
	for _, t := range tokens {
		size += len(t)
	}
	var b strings.Builder
	b.Grow(size) // enough, unless something is escaped
	for i, t := range tokens {
		if i > 0 {
			b.WriteString(KeySeparator)
		}
		b.WriteString(escapeToken.Replace(t))
	}
	return b.String()
}

// SplitKey returns the tokens of a key that JoinKey wrote. A "%" that begins no escape
// stands for itself, so that a key can be written by hand.
func SplitKey(key string) []string {
	tokens := strings.Split(key, KeySeparator)
	for i, t := range tokens {
		tokens[i] = unescapeToken.Replace(t)
	}
	return tokens
}

// SlotOfKey is SlotOf for a key in its written form; see JoinKey.
func SlotOfKey(slots int, key string) int { return SlotOf(slots, SplitKey(key)...) }

// SlotOf returns the slot, 0 to slots-1, of the key made of these subject
// tokens. It is the hash of nats-server's partition(n, …) subject mapping
// function: FNV-1a, 32 bits, over the tokens' bytes without separators, modulo
// the number of slots. slots must be at least 1.
//
// Source: NATS documentation, "Deterministic Subject Token Partitioning".
func SlotOf(slots int, tokens ...string) int {
	h := fnv.New32a()
	for _, t := range tokens {
		_, _ = h.Write([]byte(t))
	}
	return int(h.Sum32() % uint32(slots))
}

// Slots names some of the slots that the keys are divided in. Their number can
// change while the group works.
type Slots struct {
	Of    int   // in how many slots the keys are divided
	Slots []int // ascending
}

// Has reports whether the key made of these subject tokens is in one of the slots.
func (s Slots) Has(tokens ...string) bool {
	_, ok := slices.BinarySearch(s.Slots, SlotOf(s.Of, tokens...))
	return ok
}
