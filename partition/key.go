package partition

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

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

// KeySeparator stands between the tokens of a key: "tool001:chamber1".
const KeySeparator = ":"

// SlotOfKey is SlotOf for a key in its written form, tokens joined by
// KeySeparator.
func SlotOfKey(slots int, key string) int {
	return SlotOf(slots, strings.Split(key, KeySeparator)...)
}

// pattern is a subject with single-token wildcards, "dc.*.*.completion". The
// wildcards, in order, are the key.
type pattern struct {
	subject string
	tokens  []string
	wild    []int // positions of the wildcards in tokens
}

func parsePattern(subject string) (pattern, error) {
	p := pattern{subject: subject, tokens: strings.Split(subject, ".")}
	for i, t := range p.tokens {
		switch {
		case t == "*":
			p.wild = append(p.wild, i)
		case t == "" || strings.ContainsAny(t, "*> \t\r\n"):
			return pattern{}, fmt.Errorf("token %d of %q is not a literal or a single \"*\": write a subject such as \"dc.*.*.completion\", whose wildcards are the key", i+1, subject)
		}
	}
	if len(p.wild) == 0 {
		return pattern{}, fmt.Errorf("%q has no \"*\": its wildcards are the key, so at least one is needed", subject)
	}
	return p, nil
}

// layout is one generation of a division of the keys in slots: the stream
// stores a message for "dc.tool001.chamber1.completion" as
// "<group>.l<generation>.<slot>.tool001.chamber1".
type layout struct {
	group      string
	generation int
	slots      int
	pattern    pattern
}

func (l layout) prefix() string { return l.group + ".l" + strconv.Itoa(l.generation) + "." }

// transform returns the destination of the stream's subject transform.
func (l layout) transform() string {
	var b strings.Builder
	b.WriteString(l.prefix())
	fmt.Fprintf(&b, "{{partition(%d", l.slots)
	for i := range l.pattern.wild {
		fmt.Fprintf(&b, ",%d", i+1)
	}
	b.WriteString(")}}")
	for i := range l.pattern.wild {
		fmt.Fprintf(&b, ".{{wildcard(%d)}}", i+1)
	}
	return b.String()
}

func (l layout) filter(slot int) string { return l.prefix() + strconv.Itoa(slot) + ".>" }

func (l layout) consumer(slot int) string {
	return fmt.Sprintf("%s-l%d-%04d", l.group, l.generation, slot)
}

// parse takes a stored subject apart: its slot, the key's tokens and the subject
// as it was published.
func (l layout) parse(stored string) (slot int, key []string, published string, err error) {
	rest, ok := strings.CutPrefix(stored, l.prefix())
	if !ok {
		return 0, nil, "", fmt.Errorf("subject %q is not of layout %q", stored, l.prefix())
	}
	tokens := strings.Split(rest, ".")
	if len(tokens) != len(l.pattern.wild)+1 {
		return 0, nil, "", fmt.Errorf("subject %q has %d tokens after %q, want %d", stored, len(tokens), l.prefix(), len(l.pattern.wild)+1)
	}
	slot, err = strconv.Atoi(tokens[0])
	if err != nil || slot < 0 || slot >= l.slots {
		return 0, nil, "", fmt.Errorf("subject %q names slot %q, want 0 to %d", stored, tokens[0], l.slots-1)
	}
	key = tokens[1:]
	full := append([]string(nil), l.pattern.tokens...)
	for i, at := range l.pattern.wild {
		full[at] = key[i]
	}
	return slot, key, strings.Join(full, "."), nil
}
