//go:build !race

package nodes_test

const defaultDepth = 1
