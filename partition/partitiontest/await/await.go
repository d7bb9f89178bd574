// Package await has tests wait for what other goroutines or processes bring about.
package await

import (
	"testing"
	"time"
)

const (
	// Patience is how long [That] waits: long enough for a machine that is busy with many
	// other tests.
	Patience = 2 * time.Minute

	interval = 10 * time.Millisecond
)

// That polls until a condition holds, and fails the test if it doesn't within [Patience]. what
// completes the sentence "not within 2m0s: ".
func That(t testing.TB, what string, holds func() bool) {
	t.Helper()
	Within(t, Patience, what, holds)
}

// Within is That with a time of its own, for conditions whose deadline is part of what is
// tested.
func Within(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(interval) {
		if holds() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}
