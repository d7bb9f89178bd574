// Package dynamo keeps the record, the interruptions and the event log of a cluster in two DynamoDB tables.
//
// The state table has the partition key pk and nothing else, so that a table made for the record alone serves as it is:
//
//	cluster, cluster#NAME               the record: attributes and types as its specification has them
//	interruption#[NAME#]INSTANCE        one interruption
//	interruptions, interruptions#NAME   which interruptions may be open: one attribute for each
//
// The table of the event log has the partition key pk and the sort key sk:
//
//	journal#cluster[#NAME]#2026-11-21   the events of a day, by nodes.Event.Key
//	parts#cluster[#NAME]#KEY#HASH       what of an event does not fit into its item
//	days#cluster[#NAME]                 the days that have events
//
// Both use expiresEpoch as the attribute of their time to live, which is only ever a broom: nothing that decides relies on an item
// being gone.
//
// Every write of the record or of an interruption is an UpdateItem of the attributes that change, on the condition that the item's
// revision is the one that was read. Attributes that this package does not know stay as they are. A condition that fails is read
// back and the transition is tried again on what is there: it finds its own effect if only the reply was lost, makes it if somebody
// else wrote something harmless, and is refused if it came too late.
//
// Reads are consistent. No request is sent once the context's deadline has passed, by the clock that the configuration names; the
// client's own retries obey that as well, so that a process that was stopped for longer than its lease writes nothing.
package dynamo
