package nodes

import (
	"slices"
	"time"
)

// defect is a kind of what is wrong with a worker that had joined. A worker can have several.
type defect int

// The defects. Of two that have both lasted for too long, the first of this list counts.
const (
	notReady defect = iota // its node is not Ready: its kubelet ends no pods, so nothing is drained
	impaired               // its instance fails a status check of the cloud; its node may be Ready
	diskFull               // its node is Ready and under disk pressure
)

// limit is how long a defect may last; 0: permanently.
func (d defect) limit(p Policy) time.Duration {
	switch d {
	case impaired:
		return p.ImpairedFor
	case diskFull:
		return p.DiskPressureFor
	}
	return p.NotReadyFor
}

// setting names the limit.
func (d defect) setting() string {
	return [...]string{"NOT_READY_TIMEOUT_SEC", "IMPAIRED_TIMEOUT_SEC", "DISK_PRESSURE_TIMEOUT_SEC"}[d]
}

// replacedFirst reports whether a worker with the defect may still run its pods, so that another one comes first.
func (d defect) replacedFirst() bool { return d != notReady }

// lasting is a defect of one worker and since when it has it.
type lasting struct {
	defect defect
	since  time.Time
}

// over reports whether it has lasted for too long.
func (l lasting) over(p Policy, now time.Time) bool {
	limit := l.defect.limit(p)
	return limit > 0 && now.Sub(l.since) >= limit
}

// settled reports whether it counts among many: one that has just joined becomes Ready a moment later. A status check that repairs
// nothing keeps nothing from being repaired either.
func (l lasting) settled(p Policy, now time.Time) bool {
	limit := l.defect.limit(p)
	if l.defect == impaired && limit == 0 {
		return false
	}
	return now.Sub(l.since) >= min(settleTime, limit)
}

// defects lists what is wrong with a worker that has joined, in the order of the constants.
func (w Worker) defects(now time.Time) []lasting {
	var out []lasting
	if !w.Node.Ready {
		out = append(out, lasting{notReady, w.Node.notReadySince(now)})
	}
	if w.Instance.Impairment.Failed() {
		out = append(out, lasting{impaired, w.Instance.Impairment.since(now)})
	}
	if w.Node.Ready && !w.Node.DiskFullSince.IsZero() {
		out = append(out, lasting{diskFull, w.Node.DiskFullSince})
	}
	return out
}

// decisive returns the defect for which a worker is repaired: the first that has lasted for too long, or else the one that will have
// first. The order keeps a worker that is not Ready from waiting for a replacement only because its instance is impaired, too.
func decisive(all []lasting, p Policy, now time.Time) lasting {
	if i := slices.IndexFunc(all, func(l lasting) bool { return l.over(p, now) }); i >= 0 {
		return all[i]
	}
	return slices.MinFunc(all, func(a, b lasting) int {
		la, lb := a.defect.limit(p), b.defect.limit(p)
		if la == 0 || lb == 0 { // that one never
			return int(min(lb, 1) - min(la, 1))
		}
		return a.since.Add(la).Compare(b.since.Add(lb))
	})
}
