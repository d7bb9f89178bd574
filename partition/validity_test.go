package partition

import (
	"testing"
	"time"
)

func TestLeaseValidity(t *testing.T) {
	t.Parallel()
	cfg := &Config{Lease: Lease{TTL: 6 * time.Second, Margin: 1500 * time.Millisecond, SuspicionGrace: 1500 * time.Millisecond}}
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	fresh := func() *leaseValidity {
		v := &leaseValidity{connected: true}
		v.begin(start)
		v.check(start, cfg)
		return v
	}

	t.Run("it ends a margin before the TTL, however often it is confirmed", func(t *testing.T) {
		t.Parallel()
		v := fresh()
		v.confirm(at(4400))
		if got := v.check(at(4499), cfg); got != validityUnchanged || !v.valid {
			t.Errorf("a moment before: %v", got)
		}
		if got := v.check(at(4500), cfg); got != validityLost || v.why(at(4500), cfg) != "lease not renewed in time" {
			t.Errorf("then: %v, %s", got, v.why(at(4500), cfg))
		}
	})
	t.Run("it ends when nothing was answered for the grace", func(t *testing.T) {
		t.Parallel()
		v := fresh()
		v.confirm(at(-200)) // an answer that comes late confirms no more than before
		if got := v.check(at(1500), cfg); got != validityLost || v.why(at(1500), cfg) != "no round trip within the grace" {
			t.Errorf("%v, %s", got, v.why(at(1500), cfg))
		}
	})
	t.Run("only a renewal that began after the end brings it back", func(t *testing.T) {
		t.Parallel()
		v := fresh()
		v.connected = false
		if v.check(at(100), cfg) != validityLost || v.why(at(100), cfg) != "disconnected" {
			t.Error("it is valid without a connection")
		}
		v.connected = true
		v.begin(at(100))
		if v.check(at(200), cfg) != validityUnchanged {
			t.Error("a renewal that began before brings it back")
		}
		v.begin(at(201))
		if v.check(at(300), cfg) != validityGained {
			t.Error("a renewal that began after does not")
		}
	})
	t.Run("a renewal that proves nothing does not make a long gap a short one", func(t *testing.T) {
		t.Parallel()
		v := fresh()
		v.connected = false
		v.check(at(100), cfg)
		v.connected = true
		v.discount(at(6000))
		v.begin(at(6001))
		if v.check(at(6002), cfg) != validityGained || !v.uncertain(at(6003)) {
			t.Error("certain right after a gap of 5.9 s")
		}
	})
	t.Run("after a long gap a short one counts as of the same cause", func(t *testing.T) {
		t.Parallel()
		v := fresh()
		gap := func(from, to int) {
			v.connected = false
			v.check(at(from), cfg)
			v.connected = true
			v.begin(at(to))
			v.check(at(to), cfg)
		}
		if gap(100, 400); v.uncertain(at(401)) {
			t.Error("uncertain after a short gap")
		}
		if gap(500, 5500); !v.uncertain(at(5501)) {
			t.Error("certain right after a long gap")
		}
		if gap(11000, 11400); !v.uncertain(at(17000)) {
			t.Error("certain after a short gap soon after a long one")
		}
		if v.uncertain(at(17400)) {
			t.Error("uncertain permanently")
		}
	})
}
