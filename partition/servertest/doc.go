// Package servertest holds nothing but tests: those of package partition on real NATS
// servers, embedded or processes of their own. It is in a module of its own, so that
// a user of partition doesn't need the server's module.
//
// Tests that need a server and what package partition does not export are there. They run
// the program in servertest/natsd.
package servertest
