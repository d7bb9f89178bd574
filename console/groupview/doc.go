// Package groupview turns the events of a group's workers into what the console shows: failed workers, moves of slots, and the lines of
// the timeline. It asks nothing and waits for nothing, so that a live feed and a stored stream of events give the same result.
package groupview
