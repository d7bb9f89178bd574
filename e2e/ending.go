package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/muster-dev/muster/local"
)

// endingOf is the file in which a defender in a container notes its end.
func endingOf(logFile string) string { return logFile + ".ending" }

// endingFile is a file in which a defender notes its own end. The SIGTERM of a defender in a
// container comes from a kubelet: what the defender had at that moment, only it can tell.
type endingFile string

// ending is what a defender notes: first when it was told to stop and what it had, then when
// it had ended.
type ending struct {
	Told  time.Time `json:"told"`
	Slots int       `json:"slots"` // that it pulled for then
	Ended time.Time `json:"ended"`
}

// told notes that a defender was told to stop.
func (f endingFile) told(d *Defender) error {
	at := time.Now()
	families, err := d.Gather()
	if err != nil {
		return fmt.Errorf("noting the end: %w", err)
	}
	return f.add(ending{Told: at, Slots: int(local.Metric(families, "defender_assigned_slots"))})
}

// ended notes that a defender has ended.
func (f endingFile) ended() error { return f.add(ending{Ended: time.Now()}) }

func (f endingFile) add(e ending) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("noting the end: %w", err)
	}
	file, err := os.OpenFile(string(f), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("noting the end: %w", err)
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		_ = file.Close()
		return fmt.Errorf("noting the end: %w", err)
	}
	return file.Close()
}

// read returns what a defender has noted last, zero times for what it has not. A defender
// that was started again in its container notes its end again.
func (f endingFile) read() (ending, error) {
	var last ending
	text, err := os.ReadFile(string(f))
	if os.IsNotExist(err) {
		return last, nil
	}
	if err != nil {
		return last, fmt.Errorf("reading how a defender ended: %w", err)
	}
	for line := range bytes.Lines(text) {
		var e ending
		if err := json.Unmarshal(line, &e); err != nil {
			return last, fmt.Errorf("reading how a defender ended, in %s: %w", string(f), err)
		}
		if e.Ended.IsZero() {
			last = e
		} else {
			last.Ended = e.Ended
		}
	}
	return last, nil
}
