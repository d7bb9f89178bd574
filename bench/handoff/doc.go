// Package handoff measures ways to move keys from one worker to another under
// load, side by side: in one run, with the same messages, handlers and checker.
// The brokers are child processes, so that their CPU time is known by itself.
package handoff
