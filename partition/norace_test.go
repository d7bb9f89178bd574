//go:build !race

package partition

const defaultSeeds = 250
