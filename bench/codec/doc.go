// Package codec puts Muster's T-chart codec beside others on the same traces: how
// many bytes a point takes, and how many points a second of processor time are
// decoded. Run TestTable; it prints the tables of docs/results/codec.md.
package codec
