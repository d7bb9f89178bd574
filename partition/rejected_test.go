package partition

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

func TestARecordThatCantBeBelievedIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", record.MaxBytes)
	for _, c := range []struct{ record, data, reason string }{
		{recordHeartbeat, `{"schema":1,"id":"w-1","claim":3,"weight":1}`, ""},
		{recordHeartbeat, `{"schema":1,"id":"w-1","claim":3,"weight":1,"novel":{}}`, ""},
		{recordHeartbeat, ``, "unexpected end"},
		{recordHeartbeat, `{"schema":2,"id":"w-1","claim":3,"weight":1}`, "newer version"},
		{recordHeartbeat, `{"schema":0,"id":"w-1","claim":3,"weight":1}`, "older than the oldest known"},
		{recordHeartbeat, `{"schema":1,"id":"w-2","claim":3,"weight":1}`, `lies at "w-1"`},
		{recordHeartbeat, `{"schema":1,"id":"w-1","claim":0,"weight":1}`, "no worker"},
		{recordHeartbeat, `{"schema":1,"id":"w-1","claim":3,"weight":1e300}`, "weight is"},
		{recordHeartbeat, `{"schema":1,"id":"w-1","claim":3,"weight":1,"zone":"` + long + `"}`, "at most 16384 are read"},
		{recordClaim, `{"schema":1,"instance":"i"}`, ""},
		{recordClaim, `{"schema":1}`, "no instance"},
		{recordClaim, `{"schema":3,"instance":"i"}`, "newer version"},
		{recordLeader, `{"schema":1,"id":"w-1","claim":3}`, ""},
		{recordLeader, `{"schema":1,"id":"w.>","claim":3}`, "no worker"},
		{recordLeader, `[]`, "cannot unmarshal"},
		{recordExpected, `{"schema":1,"n":30}`, ""},
		{recordExpected, `{"schema":1,"n":100001}`, "want 0 to 100000"},
		{recordPeer, `{"schema":1,"from":{"id":"w-1","claim":1},"to":{"id":"w-2","claim":2},"slots":[{"s":1,"v":1}]}`, ""},
		{recordPeer, `{"schema":1,"from":{"id":"w-1","claim":1},"to":{"id":"w-2","claim":2},"slots":[{},{},{},{},{}]}`, "5 slots, there are 4"},
		{recordPeer, `{"schema":1,"from":{"id":"","claim":1},"to":{"id":"w-2","claim":2}}`, "sender"},
		{recordFence, `{"schema":1,"from":{"id":"w-1","claim":1},"to":{"id":"w-2","claim":2},"layout":1,"slots":4,"slot":3,"fence":{"version":1,"claim":1},"stored":{"version":2,"claim":1}}`, ""},
		{recordFence, `{"schema":1,"from":{"id":"w-1","claim":1},"to":{"id":"w-2","claim":2},"layout":1,"slots":4,"slot":4,"fence":{"version":1,"claim":1},"stored":{"version":2,"claim":1}}`, "no slot 4 of 4"},
		{recordFence, `{"schema":1,"from":{"id":"w-1","claim":1},"to":{"id":"w-2","claim":2},"layout":1,"slots":4,"slot":3,"fence":{"version":2,"claim":1},"stored":{"version":2,"claim":1}}`, "not below"},
		{recordFence, `{"schema":1,"from":{"id":"","claim":1},"to":{"id":"w-2","claim":2},"layout":1,"slots":4,"slot":3,"stored":{"version":2,"claim":1}}`, "sender"},
		{recordDrain, `{"schema":1,"until":0}`, ""},
		{recordDrain, `{"schema":1,"until":-1}`, "before 1970"},
	} {
		err := decodeAs(c.record, []byte(c.data))
		switch {
		case c.reason == "" && err != nil:
			t.Errorf("%s %.60s is refused: %v", c.record, c.data, err)
		case c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)):
			t.Errorf("%s %.60s: %v, want a reason with %q", c.record, c.data, err, c.reason)
		}
		if c.reason != "" && overwritable(err) == (c.reason == "newer version") {
			t.Errorf("%s %.60s: only what a newer version wrote may be another's", c.record, c.data)
		}
	}
}

// decodeAs decodes a record, and reports an error that it returns beside a value.
func decodeAs(kind string, data []byte) (err error) {
	var v any
	switch kind {
	case recordHeartbeat:
		v, err = record.DecodeHeartbeat("w-1", data)
	case recordClaim:
		v, err = record.DecodeClaim(data)
	case recordLeader:
		v, err = record.DecodeLeader(data)
	case recordExpected:
		v, err = record.DecodeExpected(data)
	case recordPeer:
		v, err = record.DecodeMessage(data, 4)
	case recordFence:
		v, err = record.DecodeFenceReport(data)
	case recordDrain:
		v, err = record.DecodeDrain(data)
	}
	if err != nil {
		return err
	}
	again, err := json.Marshal(v)
	if err != nil {
		return errors.Join(errors.New("accepted, and can't be written"), err)
	}
	if len(again) == 0 {
		return errors.New("accepted, and nothing")
	}
	return nil
}

func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	w := &Worker{}
	w.status.Store(&Status{})
	for range 3 {
		w.events.count(refused(recordClaim, errors.New("x")))
	}
	got := w.Metrics().Counters.RecordsRejected
	if len(got) != len(records) || got[recordClaim] != 3 || got[recordMap] != 0 {
		t.Errorf("counts %v", got)
	}
}

func TestWhatIsToldOfARefusalIsBounded(t *testing.T) {
	t.Parallel()
	if e := refused(recordMap, errors.New(strings.Repeat("fault\n", 10_000))); len(e.Err) > maxReason+10 || e.Reason != recordMap {
		t.Errorf("%d bytes of %s", len(e.Err), e.Reason)
	}
}

// FuzzDecodeRecord: whatever lies at a key is refused or can be used.
func FuzzDecodeRecord(f *testing.F) {
	for i, data := range []string{`{"schema":1,"id":"w-1","claim":3,"weight":1}`, `{"schema":1,"instance":"i"}`, `{"schema":1,"id":"w-1","claim":3}`,
		`{"schema":1,"n":30}`, `{"schema":1,"from":{"id":"w-1","claim":1},"to":{"id":"w-2","claim":2},"slots":[{"s":-1,"v":1}]}`, `{"schema":1,"until":5}`, `{"schema":2}`, `{"schema":1e99}`} {
		f.Add(uint8(i), []byte(data))
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		kind := records[1+int(which)%(len(records)-1)]
		if err := decodeAs(kind, data); err != nil {
			if strings.HasPrefix(err.Error(), "accepted") {
				t.Fatalf("%s %s: %v", kind, data, err)
			}
			return
		}
		if len(data) > max(record.MaxBytes, record.MaxMessageBytes) {
			t.Errorf("%d bytes of %s are read", len(data), kind)
		}
	})
}

// TestAShortLapseSoonAfterALongOneHasTheSameCause: servers that have just been
// restarted may fail once more, and those whose leases ended meanwhile are still
// waited for.
func TestAShortLapseSoonAfterALongOneHasTheSameCause(t *testing.T) {
	t.Parallel()
	m := newMachine(Config{Name: "w"}.resolve(), "i")
	m.stage, m.now = stageJoined, time.Unix(1000, 0)
	lapse := func(d time.Duration) {
		m.lease.valid, m.lease.ended, m.lease.doubted = false, m.now, m.now
		m.now = m.now.Add(d)
		m.lease.renewed, m.lease.confirmed = m.now, m.now
		m.membership.checkLease()
		if !m.lease.valid {
			t.Fatalf("no trust after %v", d)
		}
	}
	if lapse(300 * time.Millisecond); m.lease.uncertain(m.now) {
		t.Error("shaken by a short lapse")
	}
	if lapse(5 * time.Second); !m.lease.uncertain(m.now) {
		t.Error("not shaken by a long one")
	}
	m.now = m.now.Add(time.Second)
	if lapse(300 * time.Millisecond); !m.lease.uncertain(m.now) {
		t.Error("a short one ends what the long one began")
	}
	if m.now = m.now.Add(m.cfg.Lease.TTL); m.lease.uncertain(m.now) {
		t.Error("shaken permanently")
	}
}
