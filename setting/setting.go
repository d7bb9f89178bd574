// Package setting describes the settings of a part of the program once: name in the environment, default, meaning, and how it is
// read. Help texts, documentation, flags and parsing all read the same list, and parsing reports every wrong value at once.
//
// A part declares its settings as a []Setting[Config] and reads them with Parse; what contradicts each other it checks itself and
// reports as Problems. Join puts the problems of several parts into one error.
package setting

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/quantity"
)

// Setting is one setting of a T.
type Setting[T any] struct {
	Env     string // environment variable; the flag is the same in lower case with dashes
	Default string // default as one would write it in the environment; "" leaves what T has
	Meaning string // one line
	Set     func(*T, string) error
}

// New returns a setting of a T.
func New[T any](env, byDefault, meaning string, set func(*T, string) error) Setting[T] {
	return Setting[T]{Env: env, Default: byDefault, Meaning: meaning, Set: set}
}

// Info is what help texts and documentation show of a setting.
type Info struct{ Env, Default, Meaning string }

// Flag returns the name of the flag that stands for the setting.
func (i Info) Flag() string { return strings.ReplaceAll(strings.ToLower(i.Env), "_", "-") }

// Lookup finds a value by its name in the environment, as os.LookupEnv does.
type Lookup func(env string) (string, bool)

// Describe lists settings in the order in which documentation shows them.
func Describe[T any](settings []Setting[T]) []Info {
	out := make([]Info, len(settings))
	for i, s := range settings {
		out[i] = Info{s.Env, s.Default, s.Meaning}
	}
	return out
}

// Parse sets every setting of into: to its default, then to what lookup has for it. The error is nil or an *Error with one Problem
// for each value that can't be read and each that check, which may be nil, finds wrong in the result. A setting that can't be read
// is not complained about twice.
func Parse[T any](into *T, settings []Setting[T], lookup Lookup, check func(T) []Problem) error {
	var problems []Problem
	unreadable := map[string]bool{}
	for _, s := range settings {
		if s.Default != "" {
			if err := s.Set(into, s.Default); err != nil {
				panic("default of " + s.Env + ": " + err.Error()) // a programming error that every test run would meet
			}
		}
		v, ok := lookup(s.Env)
		if !ok {
			continue
		}
		if err := s.Set(into, strings.TrimSpace(v)); err != nil {
			unreadable[s.Env] = true
			var several *Error
			if errors.As(err, &several) { // a value with parts of its own, each of which can be wrong
				problems = append(problems, several.Problems...)
				continue
			}
			problems = append(problems, Problem{Setting: s.Env, Value: v, Fix: err.Error()})
		}
	}
	if check != nil {
		for _, p := range check(*into) {
			if !unreadable[p.Setting] {
				problems = append(problems, p)
			}
		}
	}
	order := make([]string, len(settings))
	for i, s := range settings {
		order[i] = s.Env
	}
	return Problems(problems, order)
}

// Problem is one wrong setting.
type Problem struct {
	Setting string // environment variable
	Value   string // as given; never a secret
	Fix     string // what to do about it
}

// Error lists every wrong setting.
type Error struct{ Problems []Problem }

// Error returns one line per problem.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(quantity.Of(len(e.Problems), "wrong setting") + ":")
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s=%q: %s", p.Setting, p.Value, p.Fix)
	}
	return b.String()
}

// Problems returns nil for no problem, or an *Error that lists them in the given order of names, others last.
func Problems(ps []Problem, order []string) error {
	if len(ps) == 0 {
		return nil
	}
	at := func(p Problem) int {
		if i := slices.Index(order, p.Setting); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(ps, func(a, b Problem) int { return at(a) - at(b) })
	return &Error{Problems: ps}
}

// Join returns one *Error with the problems of all that are *Errors, joined with whatever other errors there are; nil if all are nil.
func Join(errs ...error) error {
	var all Error
	var others []error
	for _, err := range errs {
		var e *Error
		if errors.As(err, &e) {
			all.Problems = append(all.Problems, e.Problems...)
		} else if err != nil {
			others = append(others, err)
		}
	}
	if len(all.Problems) > 0 {
		others = append([]error{&all}, others...)
	}
	return errors.Join(others...)
}

// Text sets a string.
func Text[T any](f func(*T) *string) func(*T, string) error {
	return func(t *T, v string) error { *f(t) = v; return nil }
}

// Number sets a finite number.
func Number[T any](f func(*T) *float64) func(*T, string) error {
	return func(t *T, v string) error {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
			return errors.New("write a number, for example 0.5")
		}
		*f(t) = n
		return nil
	}
}

// Seconds sets a duration from a whole number of seconds.
func Seconds[T any](f func(*T) *time.Duration) func(*T, string) error {
	return func(t *T, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return errors.New("write a whole number of seconds, for example 300")
		}
		*f(t) = time.Duration(n) * time.Second
		return nil
	}
}

// Int sets an int.
func Int[T any](f func(*T) *int) func(*T, string) error {
	return func(t *T, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil {
			return errors.New("write a whole number")
		}
		*f(t) = int(n)
		return nil
	}
}

// Bool sets a bool.
func Bool[T any](f func(*T) *bool) func(*T, string) error {
	return func(t *T, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errors.New("write true or false")
		}
		*f(t) = b
		return nil
	}
}

// List sets a list from values separated by commas.
func List[T any](f func(*T) *[]string) func(*T, string) error {
	return func(t *T, v string) error {
		var out []string
		for _, s := range strings.Split(v, ",") {
			if s = strings.TrimSpace(s); s != "" {
				out = append(out, s)
			}
		}
		*f(t) = out
		return nil
	}
}

// URL sets the text of an http or https URL; "" is allowed.
func URL[T any](f func(*T) *string) func(*T, string) error {
	return func(t *T, v string) error {
		if v != "" {
			u, err := url.Parse(v)
			if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return errors.New("write a URL with its scheme, for example http://prometheus.example:9090")
			}
		}
		*f(t) = v
		return nil
	}
}
