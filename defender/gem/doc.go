// Package gem is a GEM host (SEMI E30) that makes runs of equipment into T-charts.
//
// A [Plan] says which tools there are, which status variables to trace, and which events
// start and end a run. For each tool the host connects, establishes communications, defines
// the reports of the events and starts one trace per chamber, which lasts. A run is cut out
// of the trace by the equipment's own clock: both the events' reports and the trace's
// messages have it. So what was spooled while the link was down is cut as if it had come in
// time.
//
// No run is short silently. The trace's samples are numbered by the equipment, so a hole
// shows: a run with one is reported as incomplete and not judged. The [Ledger] knows which
// runs are open before the equipment is told that their start was taken, so a host that dies
// reports them when it starts again.
//
// The parts: a [Plan] is parsed and checked; cutter has the decisions, without I/O; session
// talks to one tool while it is connected; courier gives finished runs to the ingest; [Host]
// keeps all of it running.
package gem
