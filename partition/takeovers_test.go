package partition

import (
	"testing"
	"time"
)

func TestTakeoverTable(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	f, later := Fence{Version: 3, Claim: 7}, Fence{Version: 4, Claim: 8}
	var ts takeoverTable
	if !ts.isDue(5, f, now) || ts.isDone(5, f) {
		t.Fatal("nothing has begun: want it due, and not done")
	}
	first := ts.begin(5, f)
	if ts.isDue(5, f, now) || ts.running(5, first) == nil {
		t.Error("it is under way: want it running, and not due")
	}
	ts.running(5, first).retryAt = now.Add(time.Second)
	if ts.isDue(5, f, now) || !ts.isDue(5, f, now.Add(time.Second)) {
		t.Error("it has failed: want it due a second later")
	}
	second := ts.begin(5, f)
	if ts.running(5, first) != nil {
		t.Error("the result of the first one counts, and it is the second's turn")
	}
	ts.running(5, second).done = true
	if !ts.isDone(5, f) || ts.isDue(5, f, now) || ts.isDone(5, later) {
		t.Error("it is done: want it done for this owner only")
	}
	if !ts.isDue(5, later, now) {
		t.Error("the map gives the slot to another owner: want it due again")
	}
	ts.forget(5)
	if ts.isDone(5, f) {
		t.Error("it is forgotten: want it not done")
	}
}
