// Package cassandra keeps a defender's T-charts and U-charts in Apache Cassandra: the store of many machines.
//
// Everything about a chamber but its T-charts is one partition of one table, so that a commit is one conditional write
// (a lightweight transaction): the server compares the chamber's fence, which is a static column of the partition, with the writer's, and
// stores the context's rows if the fence is not older and the context is not there yet; otherwise it changes nothing. A stale owner
// is refused by the server, however late its write arrives.
//
// The partition has a row for each way in which it is asked, told apart by the column kind:
//
//	context   one for each context: where its U-chart is. It makes a context unique
//	uchart    U-charts by recipe, newest first: history is one slice
//	time      contexts of all recipes, newest first: where their U-charts are
//	alarm     alarms, newest first
//
// Rows expire by Cassandra's time to live, at their time rounded up to a second; readers leave out what has expired before that.
// Fences never expire.
//
// Reads and writes are at LOCAL_QUORUM, conditions at LOCAL_SERIAL: one datacenter has to hold all owners of a chamber. All writes
// of a chamber's partition are conditional ones, since Cassandra orders others by another clock.
package cassandra
