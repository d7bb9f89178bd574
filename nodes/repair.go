package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// repair removes workers that have for too long not been Ready, or had an instance that fails a status check or a full disk.
type repair struct {
	*run
	removals removals
}

// begin begins the removal of a worker that is due, at most one. It is a removal like every other: in the
// record before its node is cordoned, marked before the instance is terminated, continued by any later tick.
// Only the drain is missing where the node is not Ready: the kubelet that would end the pods does not answer.
// What runs there is replaced once the Node object is gone.
func (r repair) begin(ctx context.Context, s *survey) error {
	if s.fleetErr() != nil || r.budget.spent(ctx) {
		return nil
	}
	for _, u := range UnhealthyWorkers(r.config.Policy, s.fleet(), r.state.record, r.now()) {
		// It was being removed when the survey was made and no longer is.
		_, endedSince := s.record.Removal(u.InstanceID)
		if !u.Due || endedSince {
			continue
		}
		m := Removal{
			InstanceID:   u.InstanceID,
			Node:         u.Node,
			NotReady:     u.defect() == notReady,
			DiskFull:     u.DiskFull,
			Impaired:     u.defect() == impaired,
			Phase:        PhaseDraining,
			DrainedSince: r.now().Unix(),
			Reason:       fmt.Sprintf("%s since %s", u.what(), time.Unix(u.SinceEpoch, 0).UTC().Format(time.RFC3339)),
		}
		err := r.state.apply(ctx, StartDrain{Fence: r.state.fence, Removal: m})
		if errors.Is(err, ErrPaused) { // since the survey
			return nil
		}
		if err != nil {
			return err
		}
		r.log.report(ctx, "repair.begun", u.InstanceID, "%s", m.Reason)
		return r.removals.advance(ctx, s, m)
	}
	return nil
}
