package defender

import (
	"time"

	"github.com/muster-dev/muster/partition"
)

// Names of the group and its streams.
const (
	Group       = "defender"
	Stream      = "dc-notifications"
	Subject     = "dc.*.*.completion"
	AlarmStream = "dc-alarms"
	DeadStream  = Stream + "-dead" // of partition.DeadLetter
	DeadSubject = "muster." + Group + ".dead.letter"

	// IngestSubject is where traces of runs are sent as requests; see package ingest.
	IngestSubject = "dc-ingest"
)

// CompletionSubject is where the completions of a chamber are published.
func CompletionSubject(c Chamber) string { return "dc." + c.Tool + "." + c.Name + ".completion" }

// RetryAttempts is after how many failed attempts a message becomes a dead letter, where nothing
// else is said.
const RetryAttempts = 3

// Partition returns the configuration of the defenders' group.
func Partition(slots int) partition.Config {
	return partition.Config{Name: Group, Stream: Stream, Subject: Subject, Slots: slots,
		Storage: partition.Storage{MaxAge: 7 * 24 * time.Hour, Duplicates: 2 * time.Minute},
		Retry:   partition.Retry{Attempts: RetryAttempts}}
}
