//go:build race

package partition

const defaultSeeds = 40 // the race detector takes its time
