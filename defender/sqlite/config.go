package sqlite

import (
	"strconv"
	"strings"
)

// Config says where and how to store. Only Path is required.
type Config struct {
	Path       string     // file of results; its directory has to exist and be writable
	TChartPath string     // file of T-charts; by default Path with "-tcharts" before the extension
	Durability Durability // what a write survives; by default the death of the process
	Readers    int        // most concurrent reads of each file; by default 4
}

// Durability says what a committed write survives.
type Durability int

func (d Durability) pragma() string {
	if d == Full {
		return "FULL"
	}
	return "NORMAL"
}

// String returns "normal" or "full".
func (d Durability) String() string {
	switch d {
	case Normal, Full:
		return strings.ToLower(d.pragma())
	}
	return "durability(" + strconv.Itoa(int(d)) + ")"
}

const (
	// Normal writes survive the death of the process at any point, but perhaps
	// not a power failure. The zero value.
	Normal Durability = iota
	// Full writes survive a power failure too; each commit waits for the disk.
	Full
)
