package partition

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func TestGoroutinesAreKept(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		life, end := context.WithCancel(context.Background())
		g := newGoroutines(life)
		ran := 0
		for range 3 {
			g.run(func() { ran++ })
			synctest.Wait() // the goroutine waits for its next function
		}
		if ran != 3 {
			t.Errorf("%d functions ran, want 3", ran)
		}
		select {
		case g.next <- func() { ran++ }:
		default:
			t.Error("no goroutine is kept")
		}
		synctest.Wait()
		time.Sleep(keptFor + time.Millisecond)
		synctest.Wait()
		select {
		case g.next <- func() {}:
			t.Error("a goroutine waits for longer than it should")
		default:
		}
		end()
	})
}

func TestGoroutinesThatWaitOrEnd(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		life, end := context.WithCancel(context.Background())
		g := newGoroutines(life)
		blocked, ended, last := make(chan struct{}), false, false
		g.run(func() { <-blocked })
		synctest.Wait()
		g.run(func() { // beside the one that is blocked
			defer func() { ended = true }()
			runtime.Goexit()
		})
		synctest.Wait()
		g.run(func() { last = true })
		synctest.Wait()
		if !ended || !last {
			t.Errorf("the function that ends its goroutine has run: %t, and the next one: %t", ended, last)
		}
		close(blocked)
		synctest.Wait()
		end()
		synctest.Wait() // the bubble ends only when both goroutines have
	})
}
