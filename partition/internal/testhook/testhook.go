// Package testhook gives the tests of module servertest what they need of package
// partition and users must not set. Package partition fills it in when it is initialized.
package testhook

import "time"

// LookAtSilence sets how often a worker looks at the consumers of silent slots, in a
// *partition.Config, which this package can't name.
var LookAtSilence func(config any, every time.Duration)
