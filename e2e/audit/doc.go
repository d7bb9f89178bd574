// Package audit accounts for every message of a run from the outside. It shares
// no code with the workers, nor with what publishes, and believes none of them:
// it has the broker copy every message that its stream takes, lets triggers in
// the results' database write down every change of a result, and reads the
// records of when each processing began and ended. From these it tells what
// became of each message: its effect, once and in order, or a dead letter.
package audit
