package trace

import (
	"regexp"

	"github.com/muster-dev/muster/tchart"
)

// Wafer is one context with the truth about it.
type Wafer struct {
	Trace tchart.Trace // Context is the wafer's name, Wafer its number
	Set   string       // the part of a data set it belongs to, such as "calibration"
	// Fault is the name of the fault that was induced, and empty for a normal
	// wafer.
	Fault string
	// Chamber and Group are what the columns for them hold, if there are such.
	Chamber, Group string
	// Experiment is the part of the name that tells the experiment, where names are like
	// l2901.txm, those of the recorded etches, and no column groups runs: 29, else empty.
	// Means differ between experiments, so each is treated as a chamber and recipe of its
	// own.
	Experiment string

	key [6]string // that tells it from other wafers of the file
}

// Normal reports whether no fault was induced.
func (w *Wafer) Normal() bool { return w.Fault == "" }

var etchName = regexp.MustCompile(`^[a-z]([0-9]{2})[0-9]{2}\.txm$`)

func experimentOf(name string) string {
	if m := etchName.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}
