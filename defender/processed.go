package defender

import (
	"time"

	"github.com/muster-dev/muster/defender/uchart"
)

// Processed tells of one context that was processed.
type Processed struct {
	Context  ContextRef
	Sequence uint64 // of the message in the stream
	Slot     int
	CacheHit bool // the history was in memory
	Verdict  uchart.Verdict
	Stored   bool // false: it had been stored before
	Took     time.Duration
}
