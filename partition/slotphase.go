package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// phase is where one slot stands at this worker.
type phase uint8

const (
	phasePreparing phase = iota // next owner: Preparer is running
	phaseReady                  // next owner: waits for the release
	phaseAwaiting               // owner: waits for the leader's takeover
	phaseHolding                // owner: pulls
	phaseReleasing              // old owner: ends what it has
	phaseReleased               // old owner: has ended; the map does not show it yet
)

type slotState struct {
	phase    phase
	version  uint64         // of the move or takeover that phase is about
	peer     record.Process // old owner while preparing and ready, new one while releasing
	deadline time.Time      // of releasing
	forced   bool           // released with a message unsettled
	begun    time.Time      // of this phase
	stopped  time.Time      // released: when it worked last
}
