package partition

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestParsePattern(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		subject string
		wild    []int
		fault   string
	}{
		{"dc.*.*.completion", []int{1, 2}, ""},
		{"*", []int{0}, ""},
		{"jobs.*", []int{1}, ""},
		{"", nil, "token 1"},
		{"dc..*", nil, "token 2"},
		{"dc.>", nil, "token 2"},
		{"dc.a*.b", nil, "token 2"},
		{"dc.a b.*", nil, "token 2"},
		{"dc.completion", nil, `no "*"`},
	} {
		p, err := parsePattern(tt.subject)
		switch {
		case tt.fault == "" && err != nil:
			t.Errorf("%q: %v", tt.subject, err)
		case tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)):
			t.Errorf("%q: error %v, want one with %q", tt.subject, err, tt.fault)
		case fmt.Sprint(p.wild) != fmt.Sprint(tt.wild):
			t.Errorf("%q: wildcards at %v, want %v", tt.subject, p.wild, tt.wild)
		}
	}
}

func testLayout(t testing.TB) layout {
	t.Helper()
	p, err := parsePattern("dc.*.*.completion")
	if err != nil {
		t.Fatal(err)
	}
	return layout{group: "defender", base: 64, pattern: p}
}

func TestLayoutParse(t *testing.T) {
	t.Parallel()
	l := testLayout(t)
	slot, key, published, err := l.parse("defender.slot.63.63.191.447.tool001.chamber1")
	if err != nil || slot != 447 || strings.Join(key, KeySeparator) != "tool001:chamber1" || published != "dc.tool001.chamber1.completion" {
		t.Errorf("slot %d, key %v, published %q, err %v", slot, key, published, err)
	}
	for _, stored := range []string{
		"", "defender.slot.", "defender.slot.1.1.1.1", "defender.slot.1.1.1.1.a", "defender.slot.1.1.1.1.a.b.c", // too few tokens, too many
		"defender.l2.1.1.1.1.a.b", "other.slot.1.1.1.1.a.b", // another layout, another group
		"defender.slot.1.1.1.512.a.b", "defender.slot.1.1.1.-1.a.b", "defender.slot.1.1.1.x.a.b", // no slot of it
	} {
		if _, _, _, err := l.parse(stored); err == nil {
			t.Errorf("%q is parsed", stored)
		}
	}
}

func TestLayoutNames(t *testing.T) {
	t.Parallel()
	l := testLayout(t)
	for _, tt := range []struct{ got, want string }{
		{l.transform(), "defender.slot.{{partition(64,1,2)}}.{{partition(128,1,2)}}.{{partition(256,1,2)}}.{{partition(512,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"},
		{l.filter(generation{1, 64}.place(7)), "defender.slot.7.>"},
		{l.filter(generation{3, 256}.place(199)), "defender.slot.7.71.199.>"},
		{l.consumer(generation{3, 256}.place(199)), "defender-l3-0199"},
		{fmt.Sprint(l.slotCounts()), "[64 128 256 512]"},
		{fmt.Sprint(layout{base: 40_000}.slotCounts()), "[40000]"},
		{origin("$JS.ACK.dc.defender-l3-0199.1.7.3.1700000000.0"), "dc/defender-l3-0199"},
		{origin("$JS.ACK.hub.account.dc.defender-l3-0199.1.7.3.1700000000.0.x"), "dc/defender-l3-0199"},
		{origin("reply"), "/"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

// TestAKeyIsInOverlappingSlots: whatever the slot count, a key's slot in one is
// among those that overlap with its slot in the other, and the filters of both
// select what is stored for it.
func TestAKeyIsInOverlappingSlots(t *testing.T) {
	t.Parallel()
	l := testLayout(t)
	for i := range 200 {
		tokens := []string{fmt.Sprint("tool", i), "chamber1"}
		stored := l.prefix()
		for _, n := range l.slotCounts() {
			stored += fmt.Sprint(SlotOf(n, tokens...), ".")
		}
		for gi, a := range l.slotCounts() {
			at := generation{gi, a}.place(SlotOf(a, tokens...))
			if !strings.HasPrefix(stored, strings.TrimSuffix(l.filter(at), ">")) {
				t.Errorf("%s does not select %s", l.filter(at), stored)
			}
			if !(Slots{Of: a, Slots: []int{at.slot}}).Has(tokens...) || (Slots{Of: a, Slots: []int{at.slot ^ 1}}).Has(tokens...) {
				t.Errorf("slot %d of %d: what it has is not told right", at.slot, a)
			}
			for gj, b := range l.slotCounts() {
				if got := at.overlapping(generation{gj, b}); !slices.Contains(got, SlotOf(b, tokens...)) || len(got) != max(1, b/a) {
					t.Errorf("slot %d of %d overlaps with %v of %d", at.slot, a, got, b)
				}
			}
		}
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"dc.*.*.completion", "*", "a.>", "..", "a.b", "\x00.*"} {
		f.Add(s, "defender.slot.3.3.3.3.a.b")
	}
	f.Fuzz(func(t *testing.T, subject, stored string) {
		p, err := parsePattern(subject)
		if err != nil {
			return
		}
		l := layout{group: "defender", base: 16, pattern: p}
		slot, key, published, err := l.parse(stored)
		if err != nil {
			return
		}
		if slot < 0 || slot >= l.finest() || len(key) != len(p.wild) {
			t.Errorf("%q in %q: slot %d, key %q", stored, subject, slot, key)
		}
		tokens := strings.Split(published, ".")
		if len(tokens) != len(p.tokens) {
			t.Fatalf("%q in %q: published as %q", stored, subject, published)
		}
		for i, at := range p.wild {
			if tokens[at] != key[i] {
				t.Errorf("%q in %q: published as %q, key %q", stored, subject, published, key)
			}
		}
	})
}

func origin(reply string) string {
	stream, consumer := originOf(reply)
	return stream + "/" + consumer
}
