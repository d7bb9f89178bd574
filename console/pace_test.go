package console

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: a change after a quiet time is read at once, and those that follow it closely are read together.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var read []time.Duration
		c, err := New(Options{Refresh: time.Hour, Workers: func(context.Context) (WorkerPlane, error) {
			read = append(read, time.Since(began))
			return WorkerPlane{}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.pages[&page{wake: make(chan struct{}, 1)}] = struct{}{} // somebody looks
		ctx, stop := context.WithCancel(t.Context())
		go c.Run(ctx)
		for range 5 { // at 1 s, and 10, 20, 30 and 40 ms after it
			synctest.Wait()
			time.Sleep(max(time.Second-time.Since(began), 10*time.Millisecond))
			c.Changed()
		}
		time.Sleep(time.Second)
		stop()
		synctest.Wait()
		if want := []time.Duration{time.Second, time.Second + settle}; !slices.Equal(read, want) {
			t.Errorf("the planes were read after %v, want %v", read, want)
		}
	})
}
