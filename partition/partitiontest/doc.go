// Package partitiontest tests a handler through failures of workers, without a server and in
// milliseconds.
//
// [Run] starts a simulated group: its workers share slots, each has a handler of its own, and the
// test publishes messages, kills workers, pauses them, and lets others join and leave. What a
// handler meets is what it meets on a real group: one message of a key at a time, in order; the
// same message again after an error, a takeover, or a failure between its effect and the
// acknowledgement; dead letters; higher fences; states that move. Time is that of [synctest]: a
// takeover takes none of the test's.
//
//	func TestFailover(t *testing.T) {
//		accounts := newAccounts() // rejects lower fences
//		newHandler := func(string) partition.Handler { return &handler{accounts} }
//		partitiontest.Run(t, partitiontest.Options{}, newHandler, func(t *testing.T, g *partitiontest.Group) {
//			g.Publish(partition.Outgoing{Key: "customer-7", Data: []byte("100")})
//			g.Kill(g.Owner("customer-7"))
//			g.Publish(partition.Outgoing{Key: "customer-7", Data: []byte("-40")})
//			g.Settle()
//			if got := accounts.balance("customer-7"); got != 60 {
//				t.Errorf("the balance is %d, want 60", got)
//			}
//		})
//	}
//
// The group is a model, not the workers' code: it does what the documentation of [partition.Handler]
// and of the optional interfaces promises. Leases, elections, the limits of streams, resharding and
// Source are not simulated.
package partitiontest
