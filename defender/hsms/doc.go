// Package hsms is HSMS-SS (SEMI E37, E37.1): a connection over TCP that carries SECS-II
// messages, in one session.
//
// A connection has one goroutine that reads. It gives replies to those who wait for them,
// answers control messages, and puts primary messages into a channel in their order. If
// nobody takes them from there it stops reading, so that the other side is slowed down.
package hsms
