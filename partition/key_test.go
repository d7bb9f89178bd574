package partition

import (
	"fmt"
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
	return layout{group: "defender", generation: 3, slots: 64, pattern: p}
}

func TestLayoutParse(t *testing.T) {
	t.Parallel()
	l := testLayout(t)
	slot, key, published, err := l.parse("defender.l3.63.tool001.chamber1")
	if err != nil || slot != 63 || strings.Join(key, KeySeparator) != "tool001:chamber1" || published != "dc.tool001.chamber1.completion" {
		t.Errorf("slot %d, key %v, published %q, err %v", slot, key, published, err)
	}
	for _, stored := range []string{
		"", "defender.l3.", "defender.l3.1", "defender.l3.1.a", "defender.l3.1.a.b.c", // too few tokens, too many
		"defender.l2.1.a.b", "other.l3.1.a.b", // another layout, another group
		"defender.l3.64.a.b", "defender.l3.-1.a.b", "defender.l3.x.a.b", // no slot of it
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
		{l.transform(), "defender.l3.{{partition(64,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}"},
		{l.filter(7), "defender.l3.7.>"},
		{l.consumer(7), "defender-l3-0007"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %q, want %q", tt.got, tt.want)
		}
	}
}

func FuzzParsePattern(f *testing.F) {
	for _, s := range []string{"dc.*.*.completion", "*", "a.>", "..", "a.b", "\x00.*"} {
		f.Add(s, "defender.l1.3.a.b")
	}
	f.Fuzz(func(t *testing.T, subject, stored string) {
		p, err := parsePattern(subject)
		if err != nil {
			return
		}
		l := layout{group: "defender", generation: 1, slots: 16, pattern: p}
		slot, key, published, err := l.parse(stored)
		if err != nil {
			return
		}
		if slot < 0 || slot >= l.slots || len(key) != len(p.wild) {
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
