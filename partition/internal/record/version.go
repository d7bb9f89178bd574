package record

import "time"

// reach bounds how far the clock of a leader can have been ahead of this one's when it
// raised a version. What is further ahead was never given by a group, and would leave
// no room for the versions after it.
const reach = 365 * 24 * time.Hour

// Until these times the clock doesn't matter, so that one that is wrong stops no group.
// More is allowed in maps than in reports: there is room above any version that a report
// can raise the map to.
var (
	reportable = SequenceEpoch.AddDate(11, 0, 0)
	readable   = SequenceEpoch.AddDate(21, 0, 0)
)

// RaisedVersion is the version of a map that is raised at a time.
func RaisedVersion(now time.Time) uint64 {
	return uint64(max(now.Sub(SequenceEpoch).Microseconds(), 0))
}

// LeastRaised is what a version must be to be a raised one: that of a day after
// SequenceEpoch. Lower ones count writes.
const LeastRaised = uint64(24 * time.Hour / time.Microsecond)

// MostReported is the highest version that a stored fence can have.
func MostReported(now time.Time) uint64 {
	return RaisedVersion(later(now.Add(reach), reportable))
}

// plausibleVersion reports whether a map that is written as a revision can have a version:
// either it counts writes of the bucket, or it was raised.
func plausibleVersion(version, rev uint64, now time.Time) bool {
	return version < rev || version >= LeastRaised && version <= RaisedVersion(later(now.Add(2*reach), readable))
}

// SequenceEpoch is from when the first sequences of streams that are created again count.
var SequenceEpoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
