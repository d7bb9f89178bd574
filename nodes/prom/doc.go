// Package prom reads the node plane's signals from Prometheus: it implements nodes.Signals over Prometheus' HTTP API.
//
// Every number comes from a PromQL query that a setting can replace, evaluated for one moment. A number that is missing, stale,
// partial or not a number becomes a missing Reading with a reason in words, never a zero:
//
//	config, err := prom.ConfigFromEnv(os.LookupEnv)
//	...
//	signals, err := prom.Open(ctx, config, policy)
//
// What the queries mean, which placeholders they may use and why they are what they are is in docs/nodes/reference.md.
package prom
