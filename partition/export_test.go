package partition

import "time"

// LookAtSilence sets how often a worker looks at the consumers of silent slots.
func LookAtSilence(c *Config, every time.Duration) { c.ghostCheck = every }
