package metadata

import (
	"encoding/json"
	"time"
)

// Notices are what a Spot instance is told of its end. Until it is, their paths don't exist.
// Source: Amazon EC2 User Guide, "Spot Instance interruption notices" and "EC2 instance
// rebalance recommendations".
type Notices struct {
	Interruption time.Time `json:"interruption,omitzero"` // when it will be taken away; zero: it was not told
	Rebalance    time.Time `json:"rebalance,omitzero"`    // when it was told that this is likely; zero: it was not
}

// add adds the paths of the notices that there are.
func (n Notices) add(tree map[string]string) {
	if !n.Interruption.IsZero() {
		at := n.Interruption.UTC().Format(time.RFC3339)
		action, _ := json.Marshal(map[string]string{"action": "terminate", "time": at}) // strings always can
		tree["meta-data/spot/instance-action"] = string(action)
		tree["meta-data/spot/termination-time"] = at
	}
	if !n.Rebalance.IsZero() {
		notice, _ := json.Marshal(map[string]string{"noticeTime": n.Rebalance.UTC().Format(time.RFC3339)})
		tree["meta-data/events/recommendations/rebalance"] = string(notice)
	}
}
