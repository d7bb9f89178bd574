package defender

import (
	"strings"
	"time"

	"github.com/muster-dev/muster/partition"
)

// Names of the group and its streams.
const (
	Group       = "defender"
	Stream      = "dc-notifications"
	Subject     = "dc.*.*.completion"
	AlarmStream = "dc-alarms"
	DeadStream  = "dc-dead"
)

// CompletionSubject is where the completions of a chamber are published.
func CompletionSubject(c Chamber) string { return "dc." + c.Tool + "." + c.Name + ".completion" }

// Partition returns the configuration of the defenders' group.
func Partition(slots int) partition.Config {
	return partition.Config{Name: Group, Stream: Stream, Subject: Subject, Slots: slots, Storage: partition.Storage{MaxAge: 7 * 24 * time.Hour, Duplicates: 2 * time.Minute}}
}

// oneLine makes a text fit for a header.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 1000 {
		s = s[:1000]
	}
	return s
}
