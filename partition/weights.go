package partition

import (
	"slices"
	"time"
)

// weights are the weights of the slots' keys, as the leader and its candidates read them.
// The candidates have them so that a new leader can plan at once.
type weights struct {
	finest []uint64 // by slot of the largest slot count; nil: every slot weighs the same
	keys   []uint64 // how many keys there are, by the same
	// known: they were read, or could not be.
	known bool

	reading bool
	due     time.Time // when to read them next; zero: they were never read

	// told: this worker, as leader, has written them down for others to see.
	told bool
	// uneven is how many readings in a row the loads of the workers have been uneven.
	uneven int
}

// weightsRetry is the pause after a reading that failed.
const weightsRetry = 5 * time.Second

// of returns the weight of each of n slots; nil: all weigh the same.
func (w *weights) of(n int) []uint64 {
	if w.finest == nil {
		return nil
	}
	return folded(w.finest, n)
}

// begin reports whether to read the weights now, and notes that they are being read.
func (w *weights) begin(now time.Time) bool {
	if w.reading || now.Before(w.due) {
		return false
	}
	w.reading = true
	return true
}

// read takes in what was read. After an error those of before stay in force.
func (w *weights) read(in weightsInput, now time.Time, interval time.Duration) {
	w.reading, w.known = false, true
	if in.err != nil {
		w.due = now.Add(weightsRetry)
		return
	}
	w.due = now.Add(interval)
	w.told = w.told && slices.Equal(w.finest, in.finest) && slices.Equal(w.keys, in.keys)
	w.finest, w.keys = in.finest, in.keys
}

// tell reports whether a leader is to write the weights down, and notes that it does.
func (w *weights) tell() bool {
	if w.finest == nil || w.told {
		return false
	}
	w.told = true
	return true
}

// forget forgets what a leader knows beside the weights.
func (w *weights) forget() { w.told, w.uneven = false, 0 }

// noteBalance notes whether the loads are uneven by the newest reading.
func (w *weights) noteBalance(uneven bool) {
	if !uneven {
		w.uneven = 0
		return
	}
	w.uneven++
}

// wake tells when the weights are to be read again.
func (w *weights) wake(sooner func(time.Time)) {
	if !w.reading {
		sooner(w.due)
	}
}

// folded returns a column of the slots of a larger slot count as one of n slots.
func folded(column []uint64, n int) []uint64 {
	out := make([]uint64, n)
	for s, v := range column {
		out[s%n] += v
	}
	return out
}

// weightOf is what a slot counts among such weights.
func weightOf(weights []uint64, s int) uint64 {
	if weights == nil {
		return 1
	}
	return weights[s]
}
