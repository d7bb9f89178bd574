// Package local keeps the record and the event log of a cluster on one machine, in one SQLite file in a
// directory. Several processes may use the directory at the same time, for instance the daemon and a person's
// command.
//
// The file is nodes.db. While it is open, nodes.db-wal and nodes.db-shm lie beside it and belong to it. It
// has two tables:
//
//	items    the record of each cluster, and its interruptions, as JSON
//	events   the event log: JSON, large events compressed (zstd), by nodes.Event.Key
//
// # Durability
//
// The file is in WAL mode with synchronous=FULL: a commit appends to the log and returns after fsync. So a
// write that was acknowledged survives the death of the process and a power cut at any point. A commit that a
// crash cuts off leaves a tail whose checksums don't match, which SQLite ignores when the file is opened
// next.
//
// # Concurrency
//
// A write is one transaction that takes SQLite's write lock at its beginning. It reads the item, applies the
// transition and writes the result, so no other process can write in between. A process that finds the file
// locked tries again after a short random pause until its context ends. Readers neither wait for writers nor
// hold them up.
//
// # Damage
//
// SQLite notices a damaged page by its structure only. Each row therefore has a checksum of its content, and
// a row that doesn't match is a [CorruptError], never skipped. Opening reads all items, so a damaged record
// is reported at start-up and not at the first tick.
package local
