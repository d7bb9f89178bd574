package partition

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestTheDefaultsAreValid(t *testing.T) {
	t.Parallel()
	lay, err := Config{Name: "defender", Stream: "dc", Subject: "dc.*.*.completion"}.resolve().validate()
	if err != nil {
		t.Fatal(err)
	}
	if lay.base != 512 || lay.finest() != 4096 {
		t.Errorf("layout %+v", lay)
	}
}

func TestReplicasRenewTheLeaseWithinTheGrace(t *testing.T) {
	t.Parallel()
	c := Config{Storage: Storage{Replicas: 3}}.resolve()
	if c.Lease.Heartbeat*3 > c.Lease.SuspicionGrace {
		t.Errorf("heartbeat every %v, grace %v", c.Lease.Heartbeat, c.Lease.SuspicionGrace)
	}
}

// TestLargeGroups: where thousands of workers may run, each checks its connection less often, and
// the server's default doesn't bound how many of them can watch the map.
func TestLargeGroups(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pool, replicas  int
		grace, interval time.Duration
		check           time.Duration
		consumers       int
	}{
		{0, 1, 500 * time.Millisecond, 100 * time.Millisecond, 125 * time.Millisecond, -1},
		{500, 1, 500 * time.Millisecond, 100 * time.Millisecond, 125 * time.Millisecond, -1},
		{501, 1, 2 * time.Second, 200 * time.Millisecond, time.Second, 1102},
		{10_000, 3, 1500 * time.Millisecond, 200 * time.Millisecond, 375 * time.Millisecond, 20_100},
	} {
		c := Config{Identity: Identity{PoolSize: tt.pool}, Storage: Storage{Replicas: tt.replicas}}.resolve()
		if c.Lease.SuspicionGrace != tt.grace || c.Lease.ProbeInterval != tt.interval {
			t.Errorf("%d IDs, %d replicas: grace %v, probes every %v, want %v and %v", tt.pool, tt.replicas, c.Lease.SuspicionGrace, c.Lease.ProbeInterval, tt.grace, tt.interval)
		}
		if got := c.Lease.checkEvery(); got != tt.check {
			t.Errorf("%d IDs, %d replicas: a round trip every %v, want %v", tt.pool, tt.replicas, got, tt.check)
		}
		if got := bucketConsumers(c); got != tt.consumers {
			t.Errorf("%d IDs: a bucket may have %d consumers, want %d", tt.pool, got, tt.consumers)
		}
	}
}

// TestCheckEvery: an answer may take three quarters of the grace, or a second if that is less, and
// more if the grace is long.
func TestCheckEvery(t *testing.T) {
	t.Parallel()
	for grace := 100 * time.Millisecond; grace <= 10*time.Second; grace += 100 * time.Millisecond {
		answer := grace - Lease{SuspicionGrace: grace}.checkEvery()
		if answer < min(grace*3/4, time.Second) || answer < grace-time.Second {
			t.Errorf("grace %v: an answer may take %v", grace, answer)
		}
	}
}

// TestPullBatch: a pull asks for at least as many messages as may be in flight.
func TestPullBatch(t *testing.T) {
	t.Parallel()
	for inFlight, want := range map[int]int{1: 64, 64: 64, 65: 65, mostInFlight: mostInFlight} {
		if got := (Delivery{InFlight: inFlight}).pullBatch(); got != want {
			t.Errorf("with %d in flight a pull asks for %d messages, want %d", inFlight, got, want)
		}
	}
}

// TestSilenceCheck: however many slots an idle group has, it asks its servers at most 200 times a
// second, down to once in half a minute for each slot.
func TestSilenceCheck(t *testing.T) {
	t.Parallel()
	for slots, want := range map[int]time.Duration{
		0: 5 * time.Second, 1000: 5 * time.Second, 1280: 6400 * time.Millisecond,
		4096: 20480 * time.Millisecond, 65536: 30 * time.Second,
	} {
		c := Config{Slots: slots}.resolve()
		if got := c.silenceCheck(); got != want {
			t.Errorf("%d slots are silent for %v until they are looked at, want %v", slots, got, want)
		}
		first, last := c.firstSilenceCheck(0), c.firstSilenceCheck(manySlots-1)
		if apart := last - first; slots <= manySlots && apart != 0 || slots > manySlots && (apart < want/3 || last > want) {
			t.Errorf("%d slots that come together are looked at between %v and %v after that, want them spread", slots, first, last)
		}
	}
}

// TestConfigNamesEveryFault: a person who has made seven mistakes is told of
// seven.
func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	c := Config{Name: "Defender!", Stream: "a.b", Subject: "dc.completion", Slots: -1,
		Storage:  Storage{Replicas: 2, MaxAge: -1},
		Identity: Identity{PoolSize: -1, Capacity: math.NaN()},
		Lease: Lease{Heartbeat: -1, TTL: time.Millisecond, Margin: time.Hour, IDTTL: time.Microsecond,
			SuspicionGrace: -1, SuspicionMargin: -1, ProbeInterval: -1},
		Rebalance: Rebalance{ColdWindow: -1, PlannedWindow: -1, LeaveWindow: -1, PrepareTimeout: -1, HandoffTimeout: -1, LeaveTimeout: -1},
		Delivery:  Delivery{MaxHandlers: -1, HandlerTimeout: -1, RetryDelay: -1, AckWait: time.Millisecond},
		State:     StateHandoff{Timeout: -1, MaxBytes: -1}}
	_, err := c.resolve().validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	for _, field := range []string{"Name", "Stream", "Subject", "Slots", "Storage.Replicas", "Storage.MaxAge", "Identity.PoolSize", "Identity.Capacity",
		"Lease.Heartbeat", "Lease.SuspicionGrace", "Lease.SuspicionMargin", "Lease.ProbeInterval", "Lease.TTL", "Lease.Margin", "Lease.IDTTL",
		"Rebalance.ColdWindow", "Rebalance.PlannedWindow", "Rebalance.LeaveWindow", "Rebalance.PrepareTimeout", "Rebalance.HandoffTimeout",
		"Rebalance.LeaveTimeout", "Delivery.RetryDelay", "Delivery.HandlerTimeout", "Delivery.AckWait", "Delivery.MaxHandlers", "State.Timeout", "State.MaxBytes"} {
		if !strings.Contains(err.Error(), "\n"+field+" is ") && !strings.Contains(err.Error(), "\n"+field+": ") {
			t.Errorf("nothing about %s in: %v", field, err)
		}
	}
}

func TestRetryNamesEveryFault(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		retry Retry
		want  []string // in the error; none: there is no error
	}{
		"nothing given":               {Retry{}, nil},
		"disabled":                    {Retry{Disabled: true}, nil},
		"without end":                 {Retry{KeepFailing: true}, nil},
		"disabled and bounded":        {Retry{Disabled: true, Attempts: 3}, []string{"leave Retry.Attempts and Retry.KeepFailing out"}},
		"disabled and without end":    {Retry{Disabled: true, KeepFailing: true}, []string{"leave Retry.Attempts and Retry.KeepFailing out"}},
		"bounded and without end":     {Retry{KeepFailing: true, Attempts: 3}, []string{"Retry.Attempts is 3 and Retry.KeepFailing is on"}},
		"numbers out of their ranges": {Retry{Attempts: -1, Tries: -1, Delay: -1, PerKey: -1, PerSlot: -1}, []string{"Retry.Attempts is -1", "Retry.Tries is -1", "Retry.Delay is ", "Retry.PerKey is -1", "Retry.PerSlot is -1"}},
	} {
		_, err := Config{Name: "g", Stream: "s", Subject: "s.*", Retry: tt.retry}.resolve().validate()
		if (err == nil) != (len(tt.want) == 0) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range tt.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: nothing of %q in: %v", name, want, err)
			}
		}
	}
}

// TestRetryByDefault: a configuration that says nothing of Retry has a retry queue, and messages
// become dead letters.
func TestRetryByDefault(t *testing.T) {
	t.Parallel()
	if r := (Retry{}).resolve(); r.Disabled || !r.givesUp() || r.Attempts != 5 {
		t.Errorf("it resolves to %+v", r)
	}
	if r := (Retry{KeepFailing: true}).resolve(); r.givesUp() || r.Attempts != 0 {
		t.Errorf("KeepFailing resolves to %+v", r)
	}
	if r := (Retry{Disabled: true}).resolve(); r.givesUp() || r.Attempts != 0 {
		t.Errorf("Disabled resolves to %+v", r)
	}
}
