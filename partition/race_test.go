//go:build race

package partition

const defaultSeeds = 40 // the race detector takes its time

// layoutSeeds is how many seeds each change of the layout is simulated with.
const layoutSeeds = 1
