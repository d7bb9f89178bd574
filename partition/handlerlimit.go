package partition

import "slices"

// handlerLimit bounds how many handlers of a worker run at once, over all its slots. A run
// needs a permit before it begins a message.
//
// It is fair over slots: permits are granted in the order of asking, and a run asks again
// for each message. A handler that was interrupted and does not return keeps its permit: it
// still uses what the bound is there to protect.
type handlerLimit struct {
	most    int
	granted int // to handlers that run, and to runs that are about to begin one
	waiting []*permit
}

// permit is what a run has of a handlerLimit.
type permit struct {
	run   uint64 // whose it is
	state permitState
}

type permitState uint8

const (
	permitNone    permitState = iota
	permitAsked               // the run waits for its turn
	permitGranted             // the run may begin one message
)

// admit reports whether a run may begin a message now. If not, the run waits for its turn,
// which next gives it.
func (l *handlerLimit) admit(p *permit) bool {
	switch {
	case p.state == permitGranted:
		return true
	case p.state == permitAsked:
		return false
	case l.granted < l.most && len(l.waiting) == 0:
		l.granted++
		p.state = permitGranted
		return true
	}
	p.state = permitAsked
	l.waiting = append(l.waiting, p)
	return false
}

// next grants the permit that is free to the run that has waited longest, and returns it; nil:
// there is no permit, or no run.
func (l *handlerLimit) next() *permit {
	if l.granted >= l.most || len(l.waiting) == 0 {
		return nil
	}
	p := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.granted++
	p.state = permitGranted
	return p
}

// begun turns a run's permit into its handler's.
func (l *handlerLimit) begun(p *permit) { p.state = permitNone }

// returned takes back the permit of a handler that has returned.
func (l *handlerLimit) returned() { l.granted-- }

// withdraw takes back what a run has and does not use: its permit, or its turn.
func (l *handlerLimit) withdraw(p *permit) {
	switch p.state {
	case permitNone:
	case permitGranted:
		l.granted--
	case permitAsked:
		l.waiting = slices.DeleteFunc(l.waiting, func(o *permit) bool { return o == p })
	}
	p.state = permitNone
}
