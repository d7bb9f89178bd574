// Package daemon runs a node plane as a long-lived process: a tick every interval, interruption events as they come, metrics and
// health over HTTP, and an end that gives the lease back.
//
// It adds nothing to what a tick does: the Lambda function runs the same ticks without it.
package daemon
