// Package drill holds nothing but tests: each breaks one thing of a running node plane or of running defenders, scrapes their metrics as a
// Prometheus would, and evaluates the alert rules of deploy/prometheus on them with Prometheus' own engine, by a virtual time in which
// hours pass in seconds. docs/alerts.md names for each alert the drill that fires it.
package drill
