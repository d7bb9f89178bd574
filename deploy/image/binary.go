package main

import "time"

// binary is a command compiled for one architecture, and what it says of itself.
type binary struct {
	path, arch        string
	version, revision string    // "(devel)" and "" where the checkout's version control was not asked
	committed         time.Time // Unix time 0 if unknown: an image must not depend on when it was made
}
