package partition

import (
	"testing"

	"github.com/muster-dev/muster/partition/plan"
)

// A slot that is heavier than any share can't be balanced; what a plan does
// around it is not worth the moves, and is not tried again and again.
func TestAPlanThatHardlyHelpsIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		weights []uint64
		want    bool
	}{
		{"one slot is most of it", []uint64{100, 1, 1, 1}, false},
		{"two slots could be apart", []uint64{50, 50, 1, 1}, true},
		{"it is even", []uint64{1, 1, 1, 1}, false},
	} {
		job := &planJob{problem: plan.Problem{Slots: 4, Weights: c.weights, Workers: []plan.Worker{{ID: "a"}, {ID: "b"}},
			Owners: []int32{0, 0, 1, 1}, Budget: 4, TuneOnly: true}}
		var err error
		if job.result, err = plan.Sticky().Plan(job.problem); err != nil {
			t.Fatal(err)
		}
		if got := worthIt(job); got != c.want {
			t.Errorf("%s: %v, want %v; it moves %+v", c.name, got, c.want, job.result.Moves)
		}
	}
}
