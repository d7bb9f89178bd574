package servertest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// hostile writes into the records of a running group.
type hostile struct {
	*group
	js      jetstream.JetStream
	workers []*runningWorker
}

func (h *hostile) bucket(name string) jetstream.KeyValue {
	h.t.Helper()
	kv, err := h.js.KeyValue(h.t.Context(), name)
	if err != nil {
		h.t.Fatal(err)
	}
	return kv
}

func (h *hostile) put(bucket, key string, value []byte) {
	h.t.Helper()
	if _, err := h.bucket(bucket).Put(h.t.Context(), key, value); err != nil {
		h.t.Fatalf("writing %s/%s: %v", bucket, key, err)
	}
}

func (h *hostile) value(bucket, key string) []byte {
	h.t.Helper()
	e, err := h.bucket(bucket).Get(h.t.Context(), key)
	if err != nil {
		h.t.Fatalf("reading %s/%s: %v", bucket, key, err)
	}
	return e.Value()
}

// changed returns a JSON record with other fields.
func (h *hostile) changed(data []byte, fields map[string]any) []byte {
	h.t.Helper()
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		h.t.Fatal(err)
	}
	for k, f := range fields {
		v[k] = f
	}
	out, err := json.Marshal(v)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// leader returns the worker that leads.
func (h *hostile) leader() *runningWorker {
	h.t.Helper()
	var l *runningWorker
	await.That(h.t, "a leader", func() bool {
		for _, w := range h.workers {
			if w.Status().Leading {
				l = w
			}
		}
		return l != nil
	})
	return l
}

// survives checks that what was just written was refused for a reason that says
// so, and that the group works on: everything is processed, nobody but those who
// may has given anything up, and the map can be written.
func (h *hostile) survives(what, record, reason string) {
	h.t.Helper()
	await.That(h.t, what+": refused since "+reason, func() bool { return h.refused(record, reason) })
	h.worksAfter(what)
}

// refused reports whether a worker has refused a record of this kind for this reason.
func (h *hostile) refused(record, reason string) bool {
	h.rec.mu.Lock()
	defer h.rec.mu.Unlock()
	return slices.ContainsFunc(h.rec.events, func(e event.Event) bool {
		return e.Kind == event.RecordRejected && e.Reason == record && strings.Contains(e.Err, reason)
	})
}

// survivesHeartbeat is survives for a heartbeat of a running worker. The worker renews it every 500 ms, and the
// bucket keeps only the newest value, so on a busy machine the server may have replaced a hostile one before it
// sent it to those who watch. It is written again until somebody has seen it.
func (h *hostile) survivesHeartbeat(what, reason, id string, value []byte) {
	h.t.Helper()
	var written time.Time
	await.That(h.t, what+": refused since "+reason, func() bool {
		if time.Since(written) > time.Second {
			h.put(leases, id, value)
			written = time.Now()
		}
		return h.refused("heartbeat", reason)
	})
	h.worksAfter(what)
}

// worksAfter checks that the group works on, and forgets the events so far.
func (h *hostile) worksAfter(what string) {
	h.t.Helper()
	h.works(what)
	h.rec.mu.Lock()
	h.rec.events = nil
	h.rec.mu.Unlock()
}

func (h *hostile) works(what string) {
	h.t.Helper()
	await.That(h.t, what+": all settled again", h.settled(h.workers...))
	h.publish(40, 1)
	await.That(h.t, what+": every message processed", func() bool {
		h.rec.mu.Lock()
		defer h.rec.mu.Unlock()
		return len(h.rec.done) >= h.published()
	})
}

func startHostile(t *testing.T) *hostile {
	t.Helper()
	g := startGroup(t, oneServer(t), 0, func(c *partition.Config) {
		c.Slots, c.Lease.Heartbeat, c.Lease.TTL, c.Lease.IDTTL = 24, 500*time.Millisecond, 3*time.Second, 6*time.Second
	})
	h := &hostile{group: g}
	var err error
	if h.js, err = jetstream.New(g.connect("hostile")); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		h.workers = append(h.workers, g.start(fmt.Sprint("w", i)))
	}
	h.works("at first")
	return h
}

// ends checks that the group can still change: one worker more, and one fewer.
func (h *hostile) ends() {
	h.t.Helper()
	h.workers = append(h.workers, h.start("w9"))
	h.works("a worker more")
	h.workers[0].stop()
	h.workers = h.workers[1:]
	h.works("a worker fewer")
	h.rec.mu.Lock()
	defer h.rec.mu.Unlock()
	for _, f := range h.rec.faults {
		h.t.Error(f)
	}
}

const (
	mapBucket = "worker-assignments"
	leases    = "worker-heartbeats"
	names     = "stable-ids"
)

// asSchema2 returns an assignment map as a worker of the previous version writes it.
func asSchema2(t *testing.T, value []byte) []byte {
	t.Helper()
	a, err := record.DecodeAssignment(value)
	if err != nil {
		t.Fatal(err)
	}
	a.Schema = 2
	return record.Encode(a)
}

func TestAHostileMapChangesNothing(t *testing.T) {
	t.Parallel()
	h := startHostile(t)
	version := func() uint64 { return h.leader().Status().Version }
	before := version()
	const key = record.AssignmentKey
	good := h.value(mapBucket, key)
	older := asSchema2(t, good) // which is still read, and has its columns in JSON
	for _, c := range []struct {
		what, reason string
		value        []byte
	}{
		{"no JSON", "invalid character", []byte("\x00\xff hello")},
		{"nothing in it", "schema 0", []byte(`{}`)},
		{"an older schema", "older than the oldest known", h.changed(good, map[string]any{"schema": 0})},
		{"a newer schema", "newer version", h.changed(good, map[string]any{"schema": 99, "rules": "unknown"})},
		{"a version from the future", "from the future", h.changed(good, map[string]any{"version": uint64(1) << 50})},
		{"an epoch from the future", "from the future", h.changed(good, map[string]any{"epoch": uint64(1) << 50})},
		{"slots that changed owner later", "after the map's own", h.changed(older, map[string]any{"version": 0})},
		{"owners that are no workers", "there are", h.changed(older, map[string]any{"workers": []any{}})},
		{"a worker with a name that no worker has", "no worker", h.changed(older, map[string]any{"leader": map[string]any{"id": ">", "claim": 1}, "workers": []any{map[string]any{"id": "a.>", "claim": 1}}})},
		{"columns that end too soon", "not a varint", h.changed(good, map[string]any{"columns": []byte{0, 0, 0}, "inflated": 0})},
		{"columns that say to be long", "decompressing", h.changed(good, map[string]any{"inflated": 1 << 20})},
		{"as much as the server takes", "invalid character", []byte(strings.Repeat("x", 1<<20-200))},
	} {
		h.put(mapBucket, key, c.value)
		h.survives(c.what, "assignment map", c.reason)
		await.That(t, c.what+": a map that can be read again", func() bool {
			_, err := record.DecodeAssignment(h.value(mapBucket, key))
			return err == nil
		})
	}
	if now := version(); now != before {
		t.Errorf("map version %d, it was %d", now, before)
	}
	if err := h.bucket(mapBucket).Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	h.works("a deleted map")
	h.ends()
}

func TestAHostileLeadersLeaseIsWrittenOver(t *testing.T) {
	t.Parallel()
	h := startHostile(t)
	for _, c := range []struct{ what, reason, value string }{
		{"no JSON", "invalid character", "leader!"},
		{"an older schema", "older than the oldest known", `{"schema":-1,"id":"worker-0","claim":1}`},
		{"a name of no worker", "is no worker", `{"schema":1,"id":"*","claim":1}`},
		{"too large", "at most", `{"schema":1,"id":"` + strings.Repeat("x", 20<<10) + `"}`},
		{"a newer schema, not renewed", "newer version", `{"schema":7,"id":"worker-0","claim":1}`},
	} {
		h.put(mapBucket, "leader", []byte(c.value))
		h.survives(c.what, "leader's lease", c.reason)
		await.That(t, c.what+": a leader's lease again", func() bool {
			var v struct {
				Schema int
				ID     string
			}
			return json.Unmarshal(h.value(mapBucket, "leader"), &v) == nil && v.Schema == 1 && strings.HasPrefix(v.ID, "worker-")
		})
	}
	// And when the leader is gone: what lies there has no end of its own.
	l := h.leader()
	l.nc.Close()
	h.workers = slices.DeleteFunc(h.workers, func(w *runningWorker) bool { return w == l })
	h.put(mapBucket, "leader", []byte("junk"))
	h.works("without a leader")
	h.ends()
}

func TestHostileHeartbeatsAndClaimsAreWrittenOver(t *testing.T) {
	t.Parallel()
	h := startHostile(t)
	id := h.leader().Status().ID
	claim := func(id string) uint64 {
		for _, w := range h.workers {
			if s := w.Status(); s.ID == id {
				return s.Claim
			}
		}
		return 0
	}
	was := claim(id)
	good := h.value(leases, id)
	for _, c := range []struct {
		what, reason string
		value        []byte
	}{
		{"no JSON", "invalid character", []byte("...")},
		{"an older schema", "older than the oldest known", h.changed(good, map[string]any{"schema": 0})},
		{"another's", "lies at", h.changed(good, map[string]any{"id": "worker-99"})},
		{"no weight", "weight is", h.changed(good, map[string]any{"weight": -1})},
		{"too large", "at most", h.changed(good, map[string]any{"zone": strings.Repeat("z", 20<<10)})},
	} {
		h.survivesHeartbeat("heartbeat: "+c.what, c.reason, id, c.value)
	}
	for what, value := range map[string]string{"no JSON": "...", "an older schema": `{"schema":0,"instance":"x"}`, "no instance": `{"schema":1}`} {
		h.put(names, id, []byte(value))
		await.That(t, "claim: "+what+": written over", func() bool { return string(h.value(names, id)) != value })
		h.works("claim: " + what)
	}
	if now := claim(id); now != was {
		t.Errorf("%s has claim %d, it had %d: it was lost to what is no claim", id, now, was)
	}
	// What nobody has a heartbeat for goes after a while; a newer version's, too,
	// if it is not renewed.
	h.put(leases, "worker-3", []byte("junk"))
	h.put(leases, "no.name.of.ours", h.changed(good, map[string]any{"id": "no.name.of.ours"}))
	h.put(leases, "worker-77", h.changed(good, map[string]any{"schema": 9, "id": "worker-77"}))
	h.survives("heartbeats of nobody", "heartbeat", "is no worker")
	await.That(t, "the heartbeats of nobody removed", func() bool {
		keys, err := h.bucket(leases).Keys(t.Context())
		return err == nil && len(keys) == len(h.workers)
	})
	h.ends()
}

func TestHostileNumbersAndMessagesAreRefused(t *testing.T) {
	t.Parallel()
	h := startHostile(t)
	for value, reason := range map[string]string{"many": "invalid character", `{"schema":1,"n":-1}`: "want 0 to", `{"schema":1,"n":1000000000}`: "want 0 to",
		`{"schema":2,"n":3}`: "newer version", `{"n":3}`: "older than"} {
		h.put(mapBucket, "expected", []byte(value))
		h.survives("expected "+value, "expected number", reason)
	}
	s := h.leader().Status()
	nc := h.connect("sender")
	subject := fmt.Sprintf("muster.worker.worker.%s.%d", s.ID, s.Claim)
	for value, reason := range map[string]string{"hello": "invalid character", `{"schema":3}`: "newer version", `{"schema":1,"kind":"grant"}`: "is no worker"} {
		if err := nc.Publish(subject, []byte(value)); err != nil {
			t.Fatal(err)
		}
		h.survives("message "+value, "peer message", reason)
		if err := nc.Publish(subject+".drain", []byte(strings.Replace(value, `"kind":"grant"`, `"until":-5`, 1))); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(value, "grant") {
			reason = "before 1970"
		}
		h.survives("request "+value, "drain request", reason)
	}
	h.ends()
}
