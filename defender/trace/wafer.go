package trace

import "github.com/muster-dev/muster/defender/tchart"

// Wafer is one context with the truth about it.
type Wafer struct {
	Trace tchart.Trace // Context is the wafer's name, Wafer its number
	Set   string       // the part of a data set it belongs to, such as "calibration"
	// Fault is the name of the fault that was induced, and empty for a normal
	// wafer.
	Fault string
	// Experiment is the part of the name that tells the experiment: the second
	// and third character if they are digits, else empty. Means differ between
	// experiments, so each is treated as a chamber and recipe of its own.
	Experiment string
}

// Normal reports whether no fault was induced.
func (w *Wafer) Normal() bool { return w.Fault == "" }

func experimentOf(name string) string {
	if len(name) < 3 || !digit(name[1]) || !digit(name[2]) {
		return ""
	}
	return name[1:3]
}

func digit(b byte) bool { return b >= '0' && b <= '9' }
