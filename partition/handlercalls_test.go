package partition

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestHandlerCalls: calls count from their beginning to their return, and failed ones twice.
func TestHandlerCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls handlerCalls
		first, second := calls.begin(), calls.begin()
		if m := calls.metrics(); m.InFlight != 2 || m.Failed != 0 || m.Duration.Count != 0 {
			t.Errorf("while two run: %+v", m)
		}

		time.Sleep(20 * time.Millisecond)
		first(nil)
		time.Sleep(40 * time.Millisecond)
		second(errors.New("no"))
		m := calls.metrics()
		if m.InFlight != 0 || m.Failed != 1 || m.Duration.Count != 2 || m.Duration.Sum != 80*time.Millisecond {
			t.Errorf("after one has failed: %+v", m)
		}
		for _, b := range m.Duration.Buckets {
			want := uint64(0)
			if b.Bound >= 25*time.Millisecond {
				want = 1
			}
			if b.Bound >= 100*time.Millisecond {
				want = 2
			}
			if b.Count != want {
				t.Errorf("%d calls took at most %v, want %d", b.Count, b.Bound, want)
			}
		}
	})
}
