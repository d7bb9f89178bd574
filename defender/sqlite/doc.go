// Package sqlite keeps a defender's T-charts and U-charts in SQLite files: the
// store of one machine, safe for many processes at once.
//
// Two files are used, one for T-charts and one for everything else. A SQLite
// database has one writer at a time; with two files a collector that stores
// T-charts and the workers that store results don't wait for each other.
//
// Inside a process the writes of all goroutines go through one goroutine a file,
// which puts what has gathered while the previous transaction was committing
// into the next (group commit). Each write is still judged by itself: one that
// is fenced off doesn't disturb the others. Between processes SQLite's own lock
// decides; a writer that finds the file locked tries again after a short random
// pause until the caller's context ends.
//
// The files are in WAL mode. With the default, [Normal], a committed write
// survives the death of the process at any point, while a power failure may take
// the last writes before the last checkpoint, as a whole; [Full] waits for the
// disk at each commit.
package sqlite
