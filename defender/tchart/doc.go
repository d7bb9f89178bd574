// Package tchart encodes traces, the raw time series of one process run, into
// compact blobs and back without loss.
package tchart
