//go:build race

package partition

import "testing"

const defaultSeeds = 40 // the race detector takes its time

// oneGoroutine skips a test that runs nothing but the simulator. The simulator calls the step
// machines from one goroutine, so the race detector can't find anything there. TestSimulation
// and TestSimulationWithRetryQueue do run, and would show it if that changed.
func oneGoroutine(t *testing.T) {
	t.Helper()
	t.Skip("the simulator runs in one goroutine: nothing can race")
}
