package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/plan"
)

// planJob is one planning. The problem is fixed when it starts, in the machine's step. A
// goroutine of the callbacks solves it, and sets result and took and nothing else. Until
// it is back the machine leaves the job alone.
type planJob struct {
	reason string
	generation
	base      uint64 // revision of the map it rests on
	overrides uint64 // revision of the overrides it honours; 0: not all of them
	workers   []record.Process
	problem   plan.Problem
	frozen    map[int]record.Process // slots in motion, which keep their destination, and those of outdated workers
	balances  bool                   // it may move every slot, for the best balance
	notes     []string               // for the operator
	result    plan.Plan
	took      time.Duration
}

// optional reports whether nothing but the balance asks for the plan: one that doesn't better
// it is dropped.
func (j *planJob) optional() bool { return j.reason == reasonWeights || j.reason == reasonBalance }

func (j *planJob) index() map[record.Process]int32 {
	at := make(map[record.Process]int32, len(j.workers))
	for i, w := range j.workers {
		at[w] = int32(i)
	}
	return at
}
