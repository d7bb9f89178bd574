// Package uchart computes and judges U-charts: the statistics of every sensor
// (SVID) in every recipe step of one process run.
package uchart
