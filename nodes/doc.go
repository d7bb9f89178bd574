// Package nodes is the node plane: an autoscaler for K3s clusters on EC2 that counts capacity only once it is
// verified and makes every change of capacity a durable transaction.
//
// The package holds the domain and declares the five things it needs: Signals (metrics), Cloud (instances),
// Cluster (Kubernetes), Store (the record) and EventLog. Adapters are sub-packages. The parts:
//
//   - Policy is every setting, Observation everything that was seen, Record the one durable item of a
//     cluster.
//   - Decide says what to do. It is a pure function that lists every gate with its value and threshold.
//   - Transitions change the record. Each is a pure function with its condition; a Store makes it one
//     conditional write.
//   - Reconciler.Tick is the whole program: it takes the lease, sweeps, continues the open actions or decides
//     on one.
//   - Reconciler.Interrupt handles announced interruptions, outside the tick's lease.
//
// The files lie in layers, and each uses only those below it:
//
//   - reconciler.go, tick.go, round.go and interruption.go say what is done and in which order;
//   - scaleup.go, scaledown.go, sweep.go, repair.go, removal.go and interruption_*.go are the jobs, a type
//     each;
//   - survey.go looks, launch.go launches, drain.go takes a node out of service;
//   - run.go is what they share: a lease, calls under it, the record as last seen, events, and a budget of
//     time;
//   - transition_*.go, decide*.go, health.go and the data that they work on are pure.
//
// All time comes from a Clock and there is no package-level state, so that the same code runs in production,
// under virtual time and under a harness that crashes it at every call.
package nodes
