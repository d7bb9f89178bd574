// Package strategy reads defense strategies: which rules apply to which chambers
// and recipes, and who is told of alarms. They are a YAML file with a published
// JSON schema ([Schema]), checked as a whole: every fault is reported at once. A
// [Watcher] takes a changed file over while the defender runs and keeps the old
// one if the new one has faults. Each verdict carries the name and version of the
// strategy that it was made by.
package strategy
