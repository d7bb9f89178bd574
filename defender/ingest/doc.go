// Package ingest takes the trace of a run from any program, as CSV, JSON, Parquet or Arrow
// IPC, over HTTP or a NATS subject, and gives it to the defenders: the T-chart is stored,
// then the completion message is published, then the sender is told.
//
// A request has three parts: a [Request], which says which run it is and what the columns
// hold; the name of a [Format]; and the table itself. Each format has a reader that gives
// its cells to a table, and the table's columns know what they take. So the formats differ in
// nothing but how cells are written.
//
// Decoders of Parquet and Arrow are other people's and read what a stranger sent: a panic in
// them is an error of the input here.
package ingest
