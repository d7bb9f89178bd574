package nodes

import (
	"context"
	"math"
	"time"
)

// Signals is what the node plane needs of a metrics system.
type Signals interface {
	// Observe runs every query for the same moment. A query that fails, or returns something stale, partial
	// or not a number, gives a missing Reading; only when nothing at all could be asked is the error not nil.
	Observe(ctx context.Context) (Readings, error)
}

// Readings is what the metrics say at one moment. The minima and maxima cover the windows for which something must have lasted; they
// are asked of Prometheus, since a tick keeps nothing from the one before. ReadyIPs is compared with the cluster's own view and
// decides only while Kubernetes can't be read.
type Readings struct {
	At time.Time `json:"at,omitzero"`

	CPU    Reading `json:"cpu"`    // average utilisation of the workers, 0..1
	CPUMin Reading `json:"cpuMin"` // its minimum over the last CPU_UP_SEC
	CPUMax Reading `json:"cpuMax"` // its maximum over the last IDLE_DOWN_SEC

	Pending    Reading `json:"pending"`    // pods waiting, by the count that drives
	PendingMin Reading `json:"pendingMin"` // its minimum over the last PENDING_UP_SEC
	PendingMax Reading `json:"pendingMax"` // its maximum over the last IDLE_DOWN_SEC

	PendingOther Reading `json:"pendingOther"` // the count that does not drive, for the event log

	ReadyIPs      []string `json:"readyIps,omitempty"` // internal IPs of Ready nodes
	ReadyIPsKnown bool     `json:"readyIpsKnown,omitempty"`
}

// Reading is one number, or the reason why there is none. The zero Reading is missing: a number that was not
// read can't be taken for a zero.
type Reading struct {
	Value float64 `json:"value"`
	Known bool    `json:"known,omitempty"`
	Why   string  `json:"why,omitempty"` // why it is missing
}

// Read returns a reading of v, missing if v is not a finite number.
func Read(v float64) Reading {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Missing("not a finite number")
	}
	return Reading{Value: v, Known: true}
}

// Missing returns a reading that is missing.
func Missing(why string) Reading { return Reading{Why: why} }
