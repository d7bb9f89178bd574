// Package deployed shows what runs elsewhere on consoles: groups of workers by their NATS servers, the defenders' results by their
// store, and the node plane by its records. It is told nothing by those that it shows and changes nothing of theirs, unless a person
// with the role of an operator asks for it.
//
// Each source is read by a goroutine of its own, which keeps what it read last. So a page is answered at once whatever is away, and what
// can't be read is shown as it was, with since when. All history comes from the sources: the group's stream of events, the stream of
// alarms, the node plane's event log, and the file of commands that were given on this console.
package deployed
