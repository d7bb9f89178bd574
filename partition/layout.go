package partition

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/partition/internal/record"
)

// levels is in how many ways one stream's keys can be divided: as provisioned,
// and doubled up to levels-1 times.
const levels = 4

// layout is how the subjects of a stream name slots. A key's slot among twice as
// many is its slot, or that plus their number, so a message is stored under its
// slot under every slot count that there may be, the smallest first: one for
// "dc.tool001.chamber1.completion" as
// "<group>.slot.<of 256>.<of 512>.<of 1024>.<of 2048>.tool001.chamber1".
// Which of them counts is the consumers' matter, and can change while the stream
// stays as it is.
type layout struct {
	group   string
	base    int // slots of the smallest slot count
	pattern pattern
	stream  string // or what its shards' names begin with
	shards  int    // how many streams there are; 0 stands for 1
	source  string // an existing stream that the messages are copied from; may be empty
}

// generation is one way to divide the keys: into N slots. Its number tells
// it from every other one that the group had or will have, and names its
// consumers.
type generation struct {
	number int
	slots  int
}

// firstGeneration is what a group begins with.
func (l layout) firstGeneration() generation { return generation{1, l.base} }

// place is a slot of a generation.
type place struct {
	generation
	slot int
}

func (d generation) place(slot int) place { return place{d, slot} }

// overlapping returns the slots of another generation that have keys in common
// with this place. Of two numbers of slots one divides the other.
func (p place) overlapping(d generation) []int {
	if d.slots <= p.slots {
		return []int{p.slot % d.slots}
	}
	var out []int
	for s := p.slot; s < d.slots; s += p.slots {
		out = append(out, s)
	}
	return out
}

// slotCounts returns the numbers of slots that the subjects name, ascending.
func (l layout) slotCounts() []int {
	counts, _ := l.levels()
	ns := make([]int, counts)
	for i := range ns {
		ns[i] = l.base << i
	}
	return ns
}

// levels returns how many numbers of slots the subjects name, and the largest.
func (l layout) levels() (counts, largest int) {
	counts, largest = 1, l.base
	for counts < levels && 2*largest <= record.MaxSlots {
		counts, largest = counts+1, 2*largest
	}
	return counts, largest
}

// finest returns the largest number of slots there can be.
func (l layout) finest() int {
	_, largest := l.levels()
	return largest
}

func (l layout) prefix() string { return l.group + slotToken }

// slotToken stands between the group and the slots of a stored subject.
const slotToken = ".slot."

// transform returns the destination of the stream's subject transform.
func (l layout) transform() string {
	var b strings.Builder
	b.WriteString(l.prefix())
	for i, n := range l.slotCounts() {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(l.hashed(n))
	}
	for i := range l.pattern.wild {
		fmt.Fprintf(&b, ".{{wildcard(%d)}}", i+1)
	}
	return b.String()
}

// filter returns the subjects of a slot. Its number in the smaller slot counts
// follows from its own, and makes the filter a prefix.
func (l layout) filter(p place) string {
	var b strings.Builder
	b.WriteString(l.prefix())
	for _, n := range l.slotCounts() {
		if n > p.slots {
			break
		}
		b.WriteString(strconv.Itoa(p.slot % n))
		b.WriteByte('.')
	}
	return b.String() + ">"
}

func (l layout) consumer(p place) string {
	return fmt.Sprintf("%s-l%d-%04d", l.group, p.number, p.slot)
}

// The retry stream has one space for each slot of the smallest slot count. All that
// is written there expects the last sequence of the whole space: the queued
// messages of its keys, by the subjects of the main stream, the records of attempts, one for
// each key, and the claims of the slots' owners.

// retryPrefix begins with the token that is kept for Muster itself, as that of events
// does: a group may have the name that its subjects begin with.
func (l layout) retryPrefix() string { return "muster." + l.group + ".retry." }

func (l layout) retrySpace(slot int) string {
	return l.retryPrefix() + strconv.Itoa(slot%l.base) + "."
}

// queuedPrefix stands before a stored subject, without prefix, in a space.
func (l layout) queuedPrefix(slot int) string { return l.retrySpace(slot) + queuedToken }

func (l layout) claimPrefix(slot int) string { return l.retrySpace(slot) + "claim." }

func (l layout) claimSubject(p place) string {
	return fmt.Sprintf("%s%d.%d", l.claimPrefix(p.slot), p.slots, p.slot)
}

// queuedSubject returns the subject of the queued copy of a stored message.
func (l layout) queuedSubject(slot int, stored string) string {
	return l.queuedPrefix(slot) + strings.TrimPrefix(stored, l.prefix())
}

// countFilter returns the subjects of the queued messages of a slot, and of the records of
// attempts on its messages.
func (l layout) countFilter(p place) string {
	return l.retrySpace(p.slot) + "*." + strings.TrimPrefix(l.filter(p), l.prefix())
}

// queuedKeySubject returns the subject of the queued messages of a key.
func (l layout) queuedKeySubject(p place, key string) string {
	return l.queuedPrefix(p.slot) + l.keyTokens(key)
}

// What follows the number of the space.
const (
	queuedToken   = "key."
	attemptsToken = "attempts."
)

// attemptsSubject returns the subject of the record of attempts of a key.
func (l layout) attemptsSubject(p place, key string) string {
	return l.retrySpace(p.slot) + attemptsToken + l.keyTokens(key)
}

// keyTokens returns what follows the prefix in the stored subjects of a key.
func (l layout) keyTokens(key string) string {
	tokens := SplitKey(key)
	var b strings.Builder
	for _, n := range l.slotCounts() {
		b.WriteString(strconv.Itoa(SlotOf(n, tokens...)))
		b.WriteByte('.')
	}
	return b.String() + strings.Join(tokens, ".")
}

// parseSpace takes the subject of a queued message, or of a record of attempts, apart: which of
// these it is, and the rest as parse does.
func (l layout) parseSpace(subject string) (kind string, finest int, key []string, published string, err error) {
	rest, isRetry := strings.CutPrefix(subject, l.retryPrefix())
	tokens := strings.SplitN(rest, ".", 3)
	known := len(tokens) == 3 && (tokens[1]+"." == queuedToken || tokens[1]+"." == attemptsToken)
	if !isRetry || !known {
		return "", 0, nil, "", fmt.Errorf("subject %q is not of queued messages of %q", subject, l.retryPrefix())
	}
	finest, key, published, err = l.parse(l.prefix() + tokens[2])
	return tokens[1], finest, key, published, err
}

// parse takes a stored subject apart: its slot in the largest slot count, the key's
// tokens and the subject as it was published.
func (l layout) parse(stored string) (finest int, key []string, published string, err error) {
	rest, isGroup := strings.CutPrefix(stored, l.group)
	rest, isSlot := strings.CutPrefix(rest, slotToken)
	if !isGroup || !isSlot {
		return 0, nil, "", fmt.Errorf("subject %q is not of layout %q", stored, l.prefix())
	}
	tokens := strings.Split(rest, ".")
	counts, largest := l.levels()
	if len(tokens) != len(l.pattern.wild)+counts {
		return 0, nil, "", fmt.Errorf("subject %q has %d tokens after %q, want %d", stored, len(tokens), l.prefix(), len(l.pattern.wild)+counts)
	}
	last := tokens[counts-1]
	finest, err = strconv.Atoi(last)
	if err != nil || finest < 0 || finest >= largest {
		return 0, nil, "", fmt.Errorf("subject %q names slot %q, want 0 to %d", stored, last, largest-1)
	}
	key = tokens[counts:]
	return finest, key, l.pattern.fill(key), nil
}

// address names a consumer in the subjects of the JetStream API.
func (l layout) address(p place) string { return l.streamOf(p.slot) + "." + l.consumer(p) }

// streamOf returns the stream that holds the messages of a slot.
func (l layout) streamOf(slot int) string { return l.shardStream(slot % max(l.shards, 1)) }

func (l layout) shardStream(shard int) string {
	if l.shards <= 1 {
		return l.stream
	}
	return l.stream + "-" + strconv.Itoa(shard)
}

// hashed returns a subject mapping function that hashes the key, {{partition(n,1,2)}}.
func (l layout) hashed(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{{partition(%d", n)
	for i := range l.pattern.wild {
		fmt.Fprintf(&b, ",%d", i+1)
	}
	b.WriteString(")}}")
	return b.String()
}

// streams returns the names of all streams, by shard.
func (l layout) streams() []string {
	all := make([]string, max(l.shards, 1))
	for k := range all {
		all[k] = l.shardStream(k)
	}
	return all
}

// subject returns what the stream of a shard listens to.
func (l layout) subject(shard int) string {
	if l.sourced() {
		return l.directPrefix() + l.pattern.subject
	}
	return l.shardPrefix(strconv.Itoa(shard)) + l.pattern.subject
}

// shardPrefix stands before the published subject in the one that a shard listens
// to.
func (l layout) shardPrefix(shard string) string {
	if l.shards <= 1 {
		return ""
	}
	return l.group + ".shards." + strconv.Itoa(l.shards) + "." + shard + "."
}

// mapping returns the destination of the servers' subject mapping, whose source is
// the published subject.
func (l layout) mapping() string {
	tokens := append([]string(nil), l.pattern.tokens...)
	for i, at := range l.pattern.wild {
		tokens[at] = fmt.Sprintf("{{wildcard(%d)}}", i+1)
	}
	return l.shardPrefix(l.hashed(l.shards)) + strings.Join(tokens, ".")
}

// publish returns the subject that a message goes to which is published as the
// given one.
func (l layout) publish(subject string) (string, error) {
	key, err := l.pattern.key(subject)
	if err != nil || l.shards <= 1 {
		return subject, err
	}
	return l.shardPrefix(strconv.Itoa(SlotOf(l.shards, key...))) + subject, nil
}

// direct returns the subject that brings a message to the group's own stream which was
// published as the given one.
func (l layout) direct(subject string) (string, error) {
	if _, err := l.pattern.key(subject); err != nil || !l.sourced() {
		return l.publish(subject)
	}
	return l.directPrefix() + subject, nil
}

// sequence returns what tells a message from all others of the group: its
// sequence in its stream, and if there are several the shard, too.
func (l layout) sequence(slot int, inStream uint64) uint64 {
	n := max(l.shards, 1)
	return inStream*uint64(n) + uint64(slot%n)
}

// probeTries is how many keys are tried for an example.
const probeTries = 1 << 14

// example returns a subject as it is published of which the key is in a shard. Its
// tokens differ: the last bits of the hash of a token twice are always the same.
func (l layout) example(shard int) (string, error) {
	tokens := append([]string(nil), l.pattern.tokens...)
	key := make([]string, len(l.pattern.wild))
	for n := range probeTries {
		for i, at := range l.pattern.wild {
			key[i] = "muster-probe-" + strconv.Itoa(n>>(7*i))
			tokens[at] = key[i]
		}
		if SlotOf(l.shards, key...) == shard {
			return strings.Join(tokens, "."), nil
		}
	}
	return "", fmt.Errorf("none of %d keys is in shard %d of %d", probeTries, shard, l.shards)
}

func (l layout) deadLetterPrefix() string { return "muster." + l.group + ".dead." }

func (l layout) deadLetterSubject() string { return l.deadLetterPrefix() + "letter" }

func (l layout) deadLetterStream() string { return deadLetterStreamName(l.stream) }

func (l layout) requeueID(letter uint64) string {
	return fmt.Sprintf("%s %d", l.deadLetterStream(), letter)
}

func (l layout) letterID(m Message) string {
	return fmt.Sprintf("%s %d %d", l.stream, m.Sequence, m.Published.UnixNano())
}

func deadLetterStreamName(stream string) string { return stream + "-dead" }
