//go:build !race

package partition

const defaultSeeds = 250

// layoutSeeds is how many seeds each change of the layout is simulated with.
const layoutSeeds = 5
