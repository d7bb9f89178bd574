package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/report"
)

func TestAPauseIsWhatTheFirstMessageFelt(t *testing.T) {
	t.Parallel()
	held := simEpoch.Add(time.Hour)
	ms := func(n int) time.Time { return held.Add(time.Duration(n) * time.Millisecond) }
	at := generation{1, 64}.place(7)
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
	got := h.snapshot()
	if got.Count != 4 || got.Sum != time.Minute+3*time.Millisecond {
		t.Errorf("%d, sum %v", got.Count, got.Sum)
	}
	if len(got.Buckets) != len(bounds) {
		t.Fatalf("%d buckets, want %d", len(got.Buckets), len(bounds))
	}
	for i, want := range map[int]report.Bucket{0: {Bound: time.Millisecond, Count: 2}, 1: {Bound: 2500 * time.Microsecond, Count: 3}, len(bounds) - 1: {Bound: 30 * time.Second, Count: 3}} {
		if got.Buckets[i] != want {
			t.Errorf("bucket %d is %v, want %v", i, got.Buckets[i], want)
		}
	}
}
