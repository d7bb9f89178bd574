package sqlite

import (
	"errors"
	"strconv"
	"strings"
)

// Config says where and how to store. Only Path is required.
type Config struct {
	Path       string     // file of results; its directory has to exist and be writable
	TChartPath string     // file of T-charts; by default Path with "-tcharts" before the extension
	Durability Durability // what a write survives; by default the death of the process
	Readers    int        // most concurrent reads of each file; by default 4
	// ReadOnly opens files that are there and changes nothing in them. Every write is an error that matches [ErrReadOnly]. The
	// directory still has to be writable, since SQLite keeps its log and the log's index there.
	ReadOnly bool
}

// ErrReadOnly says that a store was opened for reading only.
var ErrReadOnly = errors.New("the store is open for reading only")

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
