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
	waiting []*runCore
}

// permit is what a run has of a handlerLimit.
type permit uint8

const (
	permitNone    permit = iota
	permitAsked          // it waits for its turn
	permitGranted        // it may begin one message
)

// admit reports whether a run may begin a message now. If not, the run waits for its turn,
// which next gives it.
func (l *handlerLimit) admit(r *runCore) bool {
	switch {
	case r.permit == permitGranted:
		return true
	case r.permit == permitAsked:
		return false
	case l.granted < l.most && len(l.waiting) == 0:
		l.granted++
		r.permit = permitGranted
		return true
	}
	r.permit = permitAsked
	l.waiting = append(l.waiting, r)
	return false
}

// next grants the permit that is free to the run that has waited longest; nil: there is no
// permit, or no run.
func (l *handlerLimit) next() *runCore {
	if l.granted >= l.most || len(l.waiting) == 0 {
		return nil
	}
	r := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	l.granted++
	r.permit = permitGranted
	return r
}

// begun turns a run's permit into its handler's.
func (l *handlerLimit) begun(r *runCore) { r.permit = permitNone }

// returned takes back the permit of a handler that has returned.
func (l *handlerLimit) returned() { l.granted-- }

// withdraw takes back what a run has and does not use: its permit, or its turn.
func (l *handlerLimit) withdraw(r *runCore) {
	switch r.permit {
	case permitNone:
	case permitGranted:
		l.granted--
	case permitAsked:
		l.waiting = slices.DeleteFunc(l.waiting, func(o *runCore) bool { return o == r })
	}
	r.permit = permitNone
}
