// Package embedded keeps the record and the journal of a cluster in a directory on one machine. Several processes may open the
// directory at the same time, for instance the daemon and a person's command.
//
// The layout is deliberately plain:
//
//	lock              taken (flock) around every read and write of the state
//	state.snap        all items at one moment; replaced only by an atomic rename
//	state-N.log       every write since, one checksummed frame each; N is named by the snapshot
//	journal.lock      taken around every append to the journal
//	journal-N.log     events, one checksummed frame each, large ones compressed (zstd); a new file every few megabytes
//
// A write is acknowledged after fsync. A crash in the middle of a write leaves a torn last frame, which the next writer cuts off; a
// damaged frame that is not the last one is reported and never skipped, because what follows was acknowledged. The snapshot names
// the log that continues it, so that there is no moment between the two files at which a crash could mix generations.
package embedded
