// Package uchart computes and judges U-charts: the statistics of every sensor
// (SVID) in every recipe step of one process run.
//
// [Compute] turns a trace into a [Chart], and [Judge] compares a chart with
// those of the chamber's earlier runs. Both are pure functions: the same
// arguments give the same bits, so that processing a run again, after a crash
// say, changes nothing.
package uchart
