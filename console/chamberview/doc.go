// Package chamberview reads from the defenders' store, and from the stream of alarms, what the console shows of chambers.
package chamberview
