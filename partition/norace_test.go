//go:build !race

package partition

import "testing"

const defaultSeeds = 250

// oneGoroutine marks a test that the race detector is of no use for.
func oneGoroutine(*testing.T) {}
