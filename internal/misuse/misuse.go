// Package misuse has the error of a command that was used wrongly.
package misuse

import "fmt"

// Error is an error that the caller's options cause: a command exits with 2 for it.
type Error struct{ Err error }

// Errorf returns an Error with a text like fmt.Errorf's.
func Errorf(format string, args ...any) error { return &Error{fmt.Errorf(format, args...)} }

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the options.
func (e *Error) Unwrap() error { return e.Err }
