package groupview

import (
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	t.Parallel()
	began := at(0)
	t.Run("are of what the broker stored and has left", func(t *testing.T) {
		t.Parallel()
		var r Rates
		if _, _, ok := r.Add(Tide{began, 1000, 10}); ok {
			t.Error("one reading has no rate")
		}
		in, out, ok := r.Add(Tide{began.Add(10 * time.Second), 1600, 110})
		if !ok || in != 60 || out != 50 {
			t.Errorf("%v in, %v out, %t", in, out, ok)
		}
	})
	t.Run("end with a stream that was created again", func(t *testing.T) {
		t.Parallel()
		var r Rates
		r.Add(Tide{began, 1000, 10})
		if _, _, ok := r.Add(Tide{began.Add(time.Second), 5, 0}); ok {
			t.Error("a stream that was created again has no rate")
		}
	})
	t.Run("are of the last 15 seconds", func(t *testing.T) {
		t.Parallel()
		var r Rates
		r.Add(Tide{began, 0, 0})
		r.Add(Tide{began.Add(time.Minute), 6000, 0})
		if in, _, ok := r.Add(Tide{began.Add(time.Minute + 10*time.Second), 6010, 0}); !ok || in != 1 {
			t.Errorf("%v in, %t", in, ok)
		}
	})
}
