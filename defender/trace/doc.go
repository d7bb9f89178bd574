// Package trace is where the traces of a machine without equipment come from:
// a [Reader] for recorded ones in CSV, and a [Generator] of look-alikes of a
// plasma etcher with known faults.
package trace
