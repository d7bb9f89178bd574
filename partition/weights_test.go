package partition

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestWeights(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var w weights
	if w.of(4) != nil {
		t.Error("before the first reading all slots weigh the same")
	}
	if !w.begin(now) || w.begin(now) {
		t.Error("want one reading at a time")
	}
	w.read(weightsInput{finest: []uint64{1, 2, 3, 4}, keys: []uint64{1, 1, 1, 1}}, now, time.Minute)
	if got := w.of(2); !slices.Equal(got, []uint64{4, 6}) {
		t.Errorf("of two slots: %v, want [4 6]", got)
	}
	if !w.tell() || w.tell() {
		t.Error("want the weights told once")
	}
	if w.begin(now.Add(time.Minute-1)) || !w.begin(now.Add(time.Minute)) {
		t.Error("want the next reading after a minute")
	}
	w.read(weightsInput{err: errors.New("no answer")}, now.Add(time.Minute), time.Minute)
	if !w.known || w.of(4) == nil || w.due != now.Add(time.Minute+weightsRetry) {
		t.Errorf("after a reading that failed: known %t, weights %v, due %v", w.known, w.of(4), w.due)
	}
	w.read(weightsInput{finest: []uint64{1, 2, 3, 4}, keys: []uint64{1, 1, 1, 1}}, now, time.Minute)
	if w.tell() {
		t.Error("the same weights are told again")
	}
	w.read(weightsInput{finest: []uint64{1, 2, 3, 5}, keys: []uint64{1, 1, 1, 1}}, now, time.Minute)
	if !w.tell() {
		t.Error("other weights are not told")
	}
	w.noteBalance(true)
	w.noteBalance(true)
	if w.uneven != 2 {
		t.Errorf("uneven in %d readings, want 2", w.uneven)
	}
	w.noteBalance(false)
	w.forget()
	if w.uneven != 0 || !w.tell() {
		t.Error("another leader tells the weights again, and counts from 0")
	}
}
