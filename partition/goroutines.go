package partition

import (
	"context"
	"time"
)

// goroutines runs functions side by side, and reuses the goroutines whose function has returned.
// Growing the stack of a new goroutine often takes longer than the handler that it calls.
type goroutines struct {
	next chan func()     // to those that are kept
	end  <-chan struct{} // closed: none is kept any more
}

// keptFor is how long a goroutine waits for its next function.
const keptFor = time.Second

// newGoroutines keeps goroutines until a context ends.
func newGoroutines(life context.Context) *goroutines {
	return &goroutines{next: make(chan func()), end: life.Done()}
}

// run calls f in another goroutine. f may end that by runtime.Goexit.
func (g *goroutines) run(f func()) {
	select {
	case g.next <- f: // one waits for it
	default:
		go g.work(f)
	}
}

func (g *goroutines) work(f func()) {
	idle := time.NewTimer(keptFor)
	defer idle.Stop()
	for {
		f()
		idle.Reset(keptFor)
		select {
		case f = <-g.next:
		case <-idle.C:
			return
		case <-g.end:
			return
		}
	}
}
