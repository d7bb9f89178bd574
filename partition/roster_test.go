package partition

import (
	"testing"
	"time"
)

func TestRoster(t *testing.T) {
	t.Parallel()
	peer := func(id string, claim uint64, lease leaseValue) *peerView {
		lease.ID, lease.MapSchema = id, mapSchema
		return &peerView{Member: Member{ID: id, Claim: claim}, lease: lease}
	}
	r := peerTable{"w-10": peer("w-10", 1, leaseValue{}), "w-9": peer("w-9", 2, leaseValue{Leaving: true}),
		"w-2": peer("w-2", 3, leaseValue{Draining: true}), "w-3": peer("w-3", 4, leaseValue{})}
	r["w-3"].lease.MapSchema = 0
	r["w-10"].suspectAt = time.Unix(1000, 0)

	var order string
	for _, p := range r.sorted() {
		order += p.ID + " "
	}
	if order != "w-2 w-3 w-9 w-10 " {
		t.Errorf("the order is %s", order)
	}
	if r.live(Member{ID: "w-9", Claim: 1}) != nil || r.live(Member{ID: "w-9", Claim: 2}) == nil || r.live(Member{ID: "w-1", Claim: 1}) != nil {
		t.Error("want a worker found under its claim only")
	}
	if r.allLive([]Member{{"w-2", 3}, {"w-9", 1}}) || !r.allLive([]Member{{"w-2", 3}, {"w-9", 2}}) {
		t.Error("want all live only if each is there under its claim")
	}
	if got := r.staying(); got != 2 {
		t.Errorf("%d stay, want 2: w-3 and w-10", got)
	}
	if got := r.takers(); got != 1 {
		t.Errorf("%d take slots, want 1: w-3 can't read the map", got)
	}
	if got := r.suspects(); got != 1 {
		t.Errorf("%d are suspected, want 1", got)
	}
}
