// Package plan assigns slots to workers: given who is there, what every slot
// weighs and who owned what before, it says who owns what next and why each
// slot moves. It is pure: no I/O, no clock, no randomness, no state. The same
// problem gives the same plan on every machine, so a plan can be shown before
// it is made and checked after.
//
// [Sticky] keeps slots where they are and is the default; [Ring] is consistent
// hashing, which needs no previous plan but balances far less well.
package plan
