package partition

import (
	"testing"
	"time"
)

func TestAPauseIsWhatTheFirstMessageFelt(t *testing.T) {
	t.Parallel()
	held := simEpoch.Add(time.Hour)
	ms := func(n int) time.Time { return held.Add(time.Duration(n) * time.Millisecond) }
	at := division{1, 64}.place(7)
	for _, c := range []struct {
		name      string
		published time.Time
		want      time.Duration
		felt      bool
	}{
		{"it waited before the old owner stopped", ms(-5000), 30 * time.Millisecond, true},
		{"it came while nobody worked", ms(-4), 14 * time.Millisecond, true},
		{"it came later", ms(3), 0, false},
	} {
		var p pauses
		p.begin(at, held, 20*time.Millisecond)
		if got, felt := p.end(at, c.published, ms(10)); got != c.want || felt != c.felt {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, felt, c.want, c.felt)
		}
		if _, again := p.end(at, c.published, ms(11)); again {
			t.Errorf("%s: counted twice", c.name)
		}
	}
}

func TestHistogramCountsWhatIsAtMostItsBound(t *testing.T) {
	t.Parallel()
	var h histogram
	for _, d := range []time.Duration{0, time.Millisecond, 2 * time.Millisecond, time.Minute} {
		h.observe(d)
	}
	if n, sum := h.n, h.sum; n != 4 || sum != 60.003 {
		t.Errorf("%d, sum %v", n, sum)
	}
	got := h.buckets()
	if got[0.001] != 2 || got[0.0025] != 3 || got[30] != 3 || len(got) != len(bounds) {
		t.Errorf("%v", got)
	}
}
