package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// expectedLog has a pattern for each log line that operators look for during a
// scale-up: those of the leader, of a defender that hands chambers off, and of one
// that joins. Chambers are listed by their slots, and each slot has a NATS consumer
// of its own, so a consumer is taken or released where others edit filter subjects.
var expectedLog = []string{
	// the leader
	`New defender detected: defender-\d+`,
	`Topology change: \d+ → \d+ defenders`,
	`Stabilization window started \(`,
	`Stabilization window complete \(\d+ defenders`,
	`Rebalancing triggered \(scale-up detected\)`,
	`Recalculating assignments \(\d+ chambers → \d+ defenders\)`,
	`Assignment calculation complete \(.*\d+ chambers moved`,
	`Published assignment map \(version \d+, \d+ defenders\)`,
	// a defender that was there
	`Received assignment map \(version \d+\)`,
	`Assignment changed: [1-9]\d* → \d+ chambers`,
	`Removing [1-9]\d* chambers: slots \[\d`,
	`Updated NATS consumers: serving \d+, one per slot`,
	`Current load: \d+ chambers, CPU: \d+%, Memory: \d+\.\d GB`,
	// a defender that joined
	`Starting defender \S+`,
	`Claimed stable ID: defender-\d+`,
	`Election result: FOLLOWER \(leader: defender-\d+\)`,
	`Assigned [1-9]\d* chambers: slots \[\d`,
	`State transition: [A-Z]+ → STABLE`,
	`Processed message for chamber \S+ \(\d+\.\d+s, cache (hit|miss)\)`,
}

// missingLogLines returns the expected lines that no defender has logged.
func missingLogLines(dir string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "log", "pod-*.log"))
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		all.Write(data)
	}
	var missing []string
	for _, p := range expectedLog {
		if !regexp.MustCompile(p).MatchString(all.String()) {
			missing = append(missing, p)
		}
	}
	return missing, nil
}
