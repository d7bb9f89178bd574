// Package misuse has the error of a command that was used wrongly.
package misuse

import (
	"errors"
	"flag"
	"fmt"
)

// Error is an error that the caller's options cause: a command exits with 2 for it.
type Error struct{ Err error }

// Errorf returns an Error with a text like fmt.Errorf's.
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the options.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns the exit code of a command that ended with err: 0 for none and for help that was
// asked for, 2 for wrong options, 1 otherwise.
func ExitCode(err error) int {
	var usage *Error
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		return 2
	default:
		return 1
	}
}

// Within returns what is wrong with a number by its flag's name, nil if it is in bounds.
func Within(flag string, v, low, high int) error {
	if v < low || v > high {
		return fmt.Errorf("--%s is %d: give %d to %d", flag, v, low, high)
	}
	return nil
}

// maxShards is how many streams the slots are spread over at most.
const maxShards = 64

// Shards returns what is wrong with the number of streams for this number of slots, by the flags'
// names.
func Shards(shards, slots int) error {
	if err := Within("shards", shards, 1, maxShards); err != nil {
		return err
	}
	if slots >= 1 && slots%shards != 0 {
		return fmt.Errorf("--shards is %d for %d --slots: give a number that divides the slots", shards, slots)
	}
	return nil
}
