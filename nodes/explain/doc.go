// Package explain tells people what the node plane saw, decided and did, why, and what would have to change for it to do something
// else. It reads snapshots, events and records, and writes tables; it asks nobody anything and has no clock.
//
// Previews (Ahead) and repeated decisions (Replay) come from nodes.Decider itself, so that an explanation can't disagree
// with the decision that it explains.
package explain
