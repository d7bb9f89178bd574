package nodes

import (
	"fmt"
	"time"
)

// Check is one thing that was looked at before the node plane is trusted with a cluster: that a permission is
// there, that a subnet exists, that a query has an answer. Adapters return them, `muster nodes doctor` prints
// them.
type Check struct {
	Name   string `json:"name"`             // what was looked at, for example "ec2:RunInstances"
	OK     bool   `json:"ok"`               // whether it is as it should be
	Detail string `json:"detail,omitempty"` // what was found, or what went wrong
	Fix    string `json:"fix,omitempty"`    // what to do about it; "" if OK
}

// shortestDrain is the DRAIN_TIMEOUT_SEC below which one crash can use up a drain's time: until the dead
// process's lease is over, until the tick after that, and then the usual grace of 30 s with some room, all
// while the drain's time runs.
const shortestDrain = leaseTTL + time.Minute + time.Minute

// Advice lists what is allowed but unwise in p, for those who check a set-up; nothing about a policy that is
// fine. It is no reason to refuse a policy: what it warns of costs time and not safety, and in a laboratory
// short times are what one wants.
func (p Policy) Advice() []Check {
	var out []Check
	if p.DrainTimeout < shortestDrain {
		out = append(out, Check{
			Name:   "setting: DRAIN_TIMEOUT_SEC",
			Detail: fmt.Sprintf("%d s is so short that a process that dies during a drain uses it up: the node is given back and passed over for a while", seconds(p.DrainTimeout)),
			Fix:    fmt.Sprintf("use %d or more, and more than your pods' longest grace period", seconds(shortestDrain)),
		})
	}
	return append(out, p.replacementAdvice()...)
}

// replacementAdvice is about a disruption budget under which workers can't be replaced as the settings say.
func (p Policy) replacementAdvice() []Check {
	replaces := p.Drift || p.ExpireAfter > 0
	if replaces && p.ConsolidatePerHour == 0 {
		return []Check{{
			Name:   "setting: CONSOLIDATE_PER_HOUR",
			Detail: "it is 0, so no drifted or expired worker is ever replaced",
			Fix:    "use 1 or more, or turn DRIFT and EXPIRE_AFTER_SEC off",
		}}
	}
	if most := p.ConsolidatePerHour * int(p.ExpireAfter/time.Hour); p.ExpireAfter > 0 && p.MaxWorkers > most {
		return []Check{{
			Name:   "setting: EXPIRE_AFTER_SEC",
			Detail: fmt.Sprintf("within it CONSOLIDATE_PER_HOUR allows %d replacements, and there can be MAX_WORKERS = %d workers, of which some get older", most, p.MaxWorkers),
			Fix:    "raise CONSOLIDATE_PER_HOUR or EXPIRE_AFTER_SEC",
		}}
	}
	return nil
}
