package e2e

import (
	"io"
	"net"
	"reflect"
	"testing"
	"time"
)

func TestAScheduleIsTheSameForASeedAndHasEveryKindOfFault(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		costs := faultCosts(seed%2 == 1, seed%3 == 1)
		short, long := chaosSchedule(seed, time.Minute, costs), chaosSchedule(seed, 10*time.Minute, costs)
		if !reflect.DeepEqual(long, chaosSchedule(seed, 10*time.Minute, costs)) {
			t.Fatalf("seed %d: two schedules", seed)
		}
		if !reflect.DeepEqual(short[:len(costs)], long[:len(costs)]) {
			t.Errorf("seed %d: a longer one begins in another way", seed)
		}
		kinds := map[faultKind]int{}
		for i, f := range long {
			kinds[f.Kind]++
			if i > 0 && f.At <= long[i-1].At {
				t.Errorf("seed %d: fault %d at %v, after %v", seed, i, f.At, long[i-1].At)
			}
			if f.Kind == faultFreeze && f.For < 8*time.Second {
				t.Errorf("seed %d: a freeze of %v, no more than a lease", seed, f.For)
			}
		}
		for _, c := range costs {
			if kinds[c.kind] < len(long)/len(costs) {
				t.Errorf("seed %d: %d faults of kind %s among %d", seed, kinds[c.kind], c.kind, len(long))
			}
		}
		if last := long[len(long)-1].At; last > 10*time.Minute || last < 9*time.Minute {
			t.Errorf("seed %d: the last fault of ten minutes at %v", seed, last)
		}
	}
	if reflect.DeepEqual(chaosSchedule(1, time.Minute, faultCosts(true, true)), chaosSchedule(2, time.Minute, faultCosts(true, true))) {
		t.Error("two seeds, one schedule")
	}
}

// TestALinkHoldsWhatIsSentWhileItIsCut: nothing passes while it is cut, and what
// was on its way arrives when it is whole again, unless the connections end.
func TestALinkHoldsWhatIsSentWhileItIsCut(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := server.Accept(); err == nil {
			accepted <- c
		}
	}()
	all, urls, err := newLinks(t.Context(), "nats://"+server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := all.Close(); err != nil {
			t.Error(err)
		}
	}()
	client, err := net.Dial("tcp", urls[len("nats://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	behind := <-accepted
	defer func() { _ = behind.Close() }()
	pass(t, client, behind, "there")
	pass(t, behind, client, "and back")

	all.cut(cutToServer)
	if _, err := io.WriteString(client, "held"); err != nil {
		t.Fatal(err)
	}
	pass(t, behind, client, "the other way is whole")
	if err := behind.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := behind.Read(make([]byte, 10)); err == nil {
		t.Fatalf("%d bytes pass a link that is cut", n)
	}
	if err := behind.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	all.heal(cutToServer)
	read(t, behind, "held")

	all.cut(cutAndReset)
	all.heal(cutAndReset)
	if n, err := behind.Read(make([]byte, 10)); err == nil {
		t.Errorf("%d bytes of a connection that has ended", n)
	}
}

func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
	read(t, to, text)
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}
