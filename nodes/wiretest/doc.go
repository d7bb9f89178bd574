// Package wiretest runs the reconciler with all its real adapters, each over HTTP against a server that speaks the real protocol:
// EC2's query protocol, the Kubernetes API, Prometheus' HTTP API and DynamoDB's. It holds only tests and benchmarks. What happened
// is read from the simulated region's ledger and not from what the reconciler says.
package wiretest
