// Package planning measures ways to assign slots to workers side by side: on
// the same cases, in one process, one after the other.
package planning
