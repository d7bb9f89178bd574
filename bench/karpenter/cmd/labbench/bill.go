package main

import "time"

// ledger is the instances that a contender has launched, by name.
type ledger map[string]life

// life is when an instance is paid for.
type life struct {
	instanceType string
	from, to     time.Time // to is zero as long as it runs
}

// launched notes a launch, once.
func (l ledger) launched(name, instanceType string, at time.Time) {
	if _, known := l[name]; !known {
		l[name] = life{instanceType: instanceType, from: at}
	}
}

// ended notes an end, once.
func (l ledger) ended(name string, at time.Time) {
	if in, known := l[name]; known && in.to.IsZero() {
		in.to = at
		l[name] = in
	}
}

// bill returns what the instances cost until a moment, and their hours, both in times of the trace.
func (l ledger) bill(s scene, until time.Time) (usd, hours float64, err error) {
	for _, in := range l {
		t, err := s.of(in.instanceType)
		if err != nil {
			return 0, 0, err
		}
		to := in.to
		if to.IsZero() || to.After(until) {
			to = until
		}
		h := to.Sub(in.from).Hours() * s.speed
		usd, hours = usd+h*t.price, hours+h
	}
	return usd, hours, nil
}
