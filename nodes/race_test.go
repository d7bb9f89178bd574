//go:build race

package nodes_test

// A small sample under the race detector, which takes ten times as long.
const defaultDepth = 0
