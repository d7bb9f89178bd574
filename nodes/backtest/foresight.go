package backtest

import (
	"time"
)

// Step is a number of nodes from a moment on.
type Step struct {
	At    time.Duration
	Nodes int
}
