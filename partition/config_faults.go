package partition

import (
	"errors"
	"fmt"
	"time"
)

// faults collects what is wrong with a configuration.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

func (f *faults) within(field string, v, most int) {
	if v < 1 || v > most {
		f.add("%s is %d: give 1 to %d", field, v, most)
	}
}

func (f *faults) positive(field string, d time.Duration) {
	if d <= 0 {
		f.add("%s is %v: give a positive duration", field, d)
	}
}

func (f *faults) err() error { return errors.Join(*f...) }

func defaulted[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
