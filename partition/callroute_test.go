package partition

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/partition/internal/record"
)

// TestCallRoute asks for the workers that a call of a key is sent to.
func TestCallRoute(t *testing.T) {
	a, b := record.Process{ID: "w-0", Claim: 3}, record.Process{ID: "w-1", Claim: 4}
	one := generation{1, 1}.place(0)
	settled := func() *record.Assignment {
		return &record.Assignment{Version: 9, Layout: 1, Slots: 1, Workers: []record.Process{a, b}, Owner: record.OwnerColumn{0}, Since: record.VersionColumn{7}}
	}
	moving := func() *record.Assignment {
		m := settled()
		m.Moves = record.MoveTable{0: {Next: 1, Version: 9}}
		return m
	}
	resharding := func() *record.Assignment {
		m := &record.Assignment{Version: 9, Layout: 2, Slots: 2, Workers: []record.Process{a, b}, Owner: record.OwnerColumn{1, 1}, Since: record.VersionColumn{9, 9}, Taking: map[int]bool{0: true, 1: true}}
		m.Former = &record.OldGeneration{Layout: 1, Slots: 1, Owner: record.OwnerColumn{0}}
		return m
	}
	nobody := settled()
	nobody.Owner = record.OwnerColumn{record.None}
	at := generation{2, 2}.place(SlotOfKey(2, "k"))

	for name, tt := range map[string]struct {
		maps []*record.Assignment // one after another, as the workers refuse
		want []callTarget
	}{
		"before the first map":            {[]*record.Assignment{nil}, nil},
		"a slot without an owner":         {[]*record.Assignment{nobody}, nil},
		"the owner, once":                 {[]*record.Assignment{settled(), settled()}, []callTarget{{one, a, Fence{7, 3}, true}}},
		"the owner, then the next one":    {[]*record.Assignment{moving()}, []callTarget{{one, a, Fence{7, 3}, false}, {one, b, Fence{9, 4}, true}}},
		"while resharding, the old owner": {[]*record.Assignment{resharding()}, []callTarget{{one, a, Fence{}, false}, {at, b, Fence{9, 4}, true}}},
		"four at most": {[]*record.Assignment{moving(), settled(), resharding()}, []callTarget{
			{one, a, Fence{7, 3}, false}, {one, b, Fence{9, 4}, true}, {one, a, Fence{7, 3}, true}, {one, a, Fence{}, false}}},
	} {
		route := callRoute{key: "k"}
		var got []callTarget
		for _, m := range tt.maps {
			for target, ok := route.next(m); ok; target, ok = route.next(m) {
				got = append(got, target)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: asks %v, want %v", name, got, tt.want)
		}
	}
}
