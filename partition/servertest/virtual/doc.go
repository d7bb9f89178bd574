// Package virtual holds nothing but tests: they run real workers of package partition
// against the real nats-server, both in one process and in virtual time, with random
// faults, and audit what became of every acknowledged message. Hours of a group's life
// pass in seconds. docs/partition.md, "How it is tested", says what is checked.
package virtual
