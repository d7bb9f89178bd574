// Package defender is fault detection and classification (FDC) for process
// chambers: it turns the sensor traces of every process run into statistics,
// judges them against the chamber's own earlier runs, and keeps the result.
//
// The words used here are those of the trade:
//
//   - a [Chamber] is one process chamber of a tool, the unit of ownership;
//   - a context is one process run of one chamber, described by [ContextRef];
//   - a T-chart is the raw trace of every sensor (SVID) in a context, encoded by
//     package tchart and kept for days;
//   - a U-chart is the statistics of a T-chart, computed and judged by package
//     uchart and kept for a year, here as [UChart].
//
// The package holds the domain: the values that travel between collector,
// worker and store, and [Store], the interface that storage adapters satisfy.
// Adapters live in sub-packages named after what they adapt and pass the suite
// in package storetest.
//
// # Ownership and fences
//
// A chamber is worked by one owner at a time, but an owner that was paused or
// cut off doesn't know that it lost the chamber. So each write of a result
// carries a [Fence], and a store keeps the highest fence it has seen for the
// chamber: what arrives under a lower one changes nothing and is answered with a
// [FencedError]. Results are keyed by context and written once; a redelivered
// message therefore finds its result and leaves it as it is.
package defender
