// Package broken doesn't compile.
package broken

import "testing"

func TestNothing(t *testing.T) { return 1 }
