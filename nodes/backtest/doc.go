// Package backtest runs a recorded pod trace through the simulated cluster and the real reconciler, on virtual time, and tells what the
// settings would have cost: how long pods waited, how many node-hours were paid, what was done.
//
// What is real: the pods (when they came, what they asked for, how long they ran), the decisions, the transactions, the scheduler's
// rule, sizes and prices of instance types. What is simulated: the cloud and the cluster; a pod's CPU use is taken to be what it asks for.
package backtest
