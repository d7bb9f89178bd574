package partition

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file models what workers see of the server: the buckets with their
// revisions, lifetimes and watches, the subjects of the workers, and the stream
// with one pinned consumer a slot.

type simServer struct {
	s         *sim
	up        bool
	behind    bool // lists show what was there once
	lostMap   bool // the map's bucket was deleted
	forgot    bool // buckets went back to an earlier state
	buckets   map[string]*simBucket
	names     []string // of buckets, in order
	subs      map[record.Process]*simWorker
	slots     []*simSlot
	byPlace   map[place]*simSlot
	stored    [][]simMessage         // by slot of the smallest slot count, not acknowledged yet
	spaces    []*simSpace            // of the retry stream, by the same
	published map[simName]simMessage // all that ever were
	queued    uint64                 // the retry stream's last sequence
	seqs      []uint64               // of the streams: those of different slots may be the same
	made      time.Duration          // when the streams were
	pins      uint64

	fullUntil time.Duration // nothing can be written before
}

type simKV struct {
	key     string
	value   []byte
	rev     uint64
	deleted bool
	expires time.Duration // 0: never
	at      time.Duration // when it was written
}

type simBucket struct {
	stale   *simKV      // what watches are shown first, though it is not there
	replica *simReplica // one that has yet to catch up; nil: none
	name    string
	made    time.Duration // when it was created again; 0: never
	seq     uint64
	last    map[string]*simKV
	pending map[string]bool // keys of which a write is under way among the replicas
	// expired are the values that have expired while such a write was under way. The server
	// proposes their markers behind it. TestAMarkerRemovesARenewal shows it of the real one.
	expired map[string]*simKV
	log     []*simKV
	gone    bool // deleted, and not created again
	history int
	marker  time.Duration // LimitMarkerTTL: how long the trace of a key that expired stays
	watches []*simWatch
}

type simWatch struct {
	w       *simWorker
	b       *simBucket
	seen    uint64 // revision
	synced  bool
	lag     time.Duration // the moment that the last delivery happens
	gen     int
	open    bool         // at the server
	see     func(*simKV) // nil: all that was there has been seen
	ended   bool
	quiet   time.Duration // the watch is made again when it tells nothing for this long; 0: never
	heard   time.Duration // when it last told something
	told    map[string]bool
	replica *simReplica // the one that it is with, if that has yet to catch up
}

func newSimServer(s *sim) *simServer {
	srv := &simServer{s: s, up: true, buckets: make(map[string]*simBucket), subs: make(map[record.Process]*simWorker), byPlace: make(map[place]*simSlot),
		seqs: make([]uint64, s.cfg.Shards), stored: make([][]simMessage, s.cfg.Slots), spaces: make([]*simSpace, s.cfg.Slots), published: make(map[simName]simMessage)}
	for i := range srv.spaces {
		srv.spaces[i] = &simSpace{srv: srv}
	}
	for _, c := range bucketConfigs(s.cfg) {
		srv.names = append(srv.names, c.Bucket)
		srv.buckets[c.Bucket] = newSimBucket(c)
	}
	for slot := range s.cfg.Slots {
		srv.slot(generation{1, s.cfg.Slots}.place(slot)).consumer = newSimConsumer()
	}
	return srv
}

func newSimBucket(c jetstream.KeyValueConfig) *simBucket {
	return &simBucket{name: c.Bucket, history: max(1, int(c.History)), marker: c.LimitMarkerTTL, last: make(map[string]*simKV), pending: make(map[string]bool), expired: make(map[string]*simKV)}
}

// slot is the slot that a consumer is for, whether or not it has one.
func (srv *simServer) slot(at place) *simSlot {
	sl := srv.byPlace[at]
	if sl == nil {
		sl = &simSlot{srv: srv, place: at}
		srv.byPlace[at] = sl
		srv.slots = append(srv.slots, sl)
	}
	return sl
}

func (srv *simServer) publish(m simMessage) {
	at := m.fine % len(srv.stored)
	srv.stored[at] = append(srv.stored[at], m)
	srv.published[m.name()] = m
	for _, sl := range srv.slots {
		if sl.consumer != nil && m.fine%sl.slots == sl.slot {
			sl.signal()
		}
	}
}

// propose is apply for a server with replicas: it takes a while until they have
// agreed on a write, which they never do if their leader goes, and meanwhile no other
// write of the key is compared with anything.
func (srv *simServer) propose(w *simWorker, e kvEffect, done func(kvInput)) {
	b, s := srv.buckets[e.bucket], srv.s
	switch writes := e.op == opCreate || e.op == opUpdate || e.op == opDelete; {
	case writes && b.pending[e.key]:
		done(kvInput{kvEffect: e, err: errUnderWay})
	case writes && !s.quiet && s.chance(s.faults.linger):
		b.pending[e.key] = true
		lost, plan, yielders := s.chance(0.3), w.lastPlan, w.yielders
		s.at(s.now+s.between(0, cmp.Or(s.faults.lingerFor, 2*s.cfg.Lease.TTL)), nil, func() {
			delete(b.pending, e.key)
			expired := b.expired[e.key]
			delete(b.expired, e.key)
			if lost {
				if expired != nil {
					srv.expire(b, expired)
				}
				return
			}
			p, y := w.lastPlan, w.yielders
			w.lastPlan, w.yielders = plan, yielders // what the checker compares the write with
			out := srv.apply(w, e)
			w.lastPlan, w.yielders = p, y
			done(out)
			if expired != nil && srv.up {
				srv.mark(b, e.key, b.marker) // over what was just written
			}
		})
	default:
		done(srv.apply(w, e))
	}
}

// apply carries out one operation of a bucket.
func (srv *simServer) apply(w *simWorker, e kvEffect) kvInput {
	out := kvInput{kvEffect: e}
	b := srv.buckets[e.bucket]
	if b.gone {
		out.err = nats.ErrNoResponders
		return out
	}
	if writes := e.op == opCreate || e.op == opUpdate || e.op == opDelete; writes && srv.full() {
		out.err = errSimFull
		return out
	}
	last := b.last[e.key]
	var rev uint64
	if last != nil {
		rev = last.rev
	}
	switch e.op {
	case opList:
		if b.replica != nil && srv.s.chance(0.5) {
			for _, kv := range b.replica.shown() {
				if !kv.deleted {
					out.keys = append(out.keys, kv.key)
				}
			}
			slices.Sort(out.keys)
			break
		}
		for k, v := range b.last {
			if !v.deleted || srv.behind {
				out.keys = append(out.keys, k)
			}
		}
		slices.Sort(out.keys)
	case opGet:
		if last == nil || last.deleted {
			out.err = errNotFound
			break
		}
		out.gotValue, out.gotRev = last.value, last.rev
	case opHistory:
		for _, v := range b.log {
			if v.key == e.key {
				out.history = append(out.history, kvVersion{value: v.value, rev: v.rev, deleted: v.deleted})
			}
		}
	case opCreate:
		if last != nil && !last.deleted && !srv.s.broken.blind(e) {
			out.err = errConflict
			break
		}
		out.gotRev = srv.put(b, e)
	case opUpdate, opDelete:
		if e.op == opDelete && e.rev == 0 {
			if last != nil && !last.deleted {
				out.err, out.gotValue, out.gotRev = errConflict, last.value, last.rev
				break
			}
			srv.mark(b, e.key, markerTTL)
			break
		}
		if e.op == opDelete && (last == nil || last.deleted) && !srv.s.broken.blind(e) {
			out.err = errNotFound
			break
		}
		if rev != e.rev && !srv.s.broken.blind(e) {
			out.err = fmt.Errorf("%w: revision %d, expected %d", errConflict, rev, e.rev)
			break
		}
		if e.op == opDelete {
			srv.mark(b, e.key, markerTTL)
			break
		}
		out.gotRev = srv.put(b, e)
	}
	if out.err == nil && e.op != opList && e.op != opGet && e.op != opHistory {
		srv.s.check.written(w, e)
	}
	return out
}

func (srv *simServer) put(b *simBucket, e kvEffect) uint64 {
	kv := &simKV{key: e.key, value: e.value}
	if e.ttl > 0 {
		ttl := b.lifetime(e.ttl)
		kv.expires = srv.s.now + ttl
		// The server sees to expiries now and then.
		srv.s.after(ttl+srv.s.between(0, 350*time.Millisecond), func() { srv.expire(b, kv) })
	}
	srv.store(b, kv)
	return kv.rev
}

// lifetime is how long the server keeps a value that was written with a TTL: whole
// seconds, and where it leaves markers and keeps several values of a key at least as
// long as those. TestServerModel compares it with the real server's.
func (b *simBucket) lifetime(ttl time.Duration) time.Duration {
	ttl = ttl.Truncate(time.Second)
	if b.history > 1 {
		ttl = max(ttl, b.marker)
	}
	return ttl
}

func (srv *simServer) expire(b *simBucket, kv *simKV) {
	if b.last[kv.key] != kv || !srv.up {
		return
	}
	if srv.full() { // there is no room for the marker
		srv.s.after(srv.s.between(0, 350*time.Millisecond), func() { srv.expire(b, kv) })
		return
	}
	srv.s.logf("server: %s/%s expired", b.name, kv.key)
	if b.pending[kv.key] {
		b.expired[kv.key] = kv
		return
	}
	srv.mark(b, kv.key, b.marker)
}

// mark stores the trace of a key that has ended, which goes by itself: who watches
// afterwards is not told.
func (srv *simServer) mark(b *simBucket, key string, ttl time.Duration) {
	kv := &simKV{key: key, deleted: true, expires: srv.s.now + ttl}
	srv.store(b, kv)
	srv.s.after(ttl, func() { srv.unmark(b, kv) })
}

func (srv *simServer) unmark(b *simBucket, kv *simKV) {
	if srv.up && b.last[kv.key] == kv {
		delete(b.last, kv.key)
		b.log = slices.DeleteFunc(b.log, func(o *simKV) bool { return o == kv })
	}
}

func (srv *simServer) store(b *simBucket, kv *simKV) {
	b.seq++
	kv.rev, kv.at = b.seq, srv.s.now
	b.last[kv.key] = kv
	b.log = append(b.log, kv)
	n, oldest := 0, -1
	for i := len(b.log) - 1; i >= 0; i-- {
		if b.log[i].key == kv.key {
			if n++; n > b.history {
				oldest = i
				break
			}
		}
	}
	if oldest >= 0 {
		b.log = slices.Delete(b.log, oldest, oldest+1)
	}
	for _, wa := range b.watches {
		if wa.open && wa.replica == nil {
			wa.push(kv)
		}
	}
}

// watch delivers the last value of every key, a nil, and then what is written,
// in order, each a while later.
func (srv *simServer) watch(w *simWorker, bucket string, quiet time.Duration, see func(*simKV)) *simWatch {
	b := srv.buckets[bucket]
	wa := &simWatch{w: w, b: b, see: see, quiet: quiet, heard: srv.s.now, told: make(map[string]bool)}
	wa.request()
	wa.listen()
	return wa
}

// listen makes a watch that tells nothing for long again, as follow and keepFollowing
// do: from the beginning, so that what was seen before is told once more.
func (wa *simWatch) listen() {
	if wa.quiet == 0 || wa.ended {
		return
	}
	s := wa.w.s
	wa.w.later(wa.heard+wa.quiet-s.now, func() {
		if wa.ended || s.now < wa.heard+wa.quiet {
			wa.listen()
			return
		}
		wa.remove()
		wa.gen++
		wa.open, wa.synced, wa.seen, wa.heard = false, false, 0, s.now+retryInterval
		clear(wa.told)
		wa.w.later(retryInterval, func() {
			if !wa.ended {
				wa.request()
			}
		})
		wa.listen()
	})
}

// request asks for the watch, again if nothing comes of it.
func (wa *simWatch) request() {
	wa.w.link.up(func() {
		if wa.b.gone {
			wa.w.keep()
		}
		if !wa.ended && !wa.b.gone && !slices.Contains(wa.b.watches, wa) {
			wa.b.watches = append(wa.b.watches, wa)
			wa.begin()
		}
	})
	wa.w.later(2*time.Second, func() {
		if !wa.ended && !slices.Contains(wa.b.watches, wa) {
			wa.request()
		}
	})
}

func (wa *simWatch) begin() {
	wa.open = true
	if wa.b.stale != nil {
		wa.push(wa.b.stale)
	}
	if wa.place(); wa.replica != nil {
		for _, kv := range wa.replica.shown() {
			wa.push(kv)
		}
	} else {
		for _, kv := range wa.b.log {
			if wa.b.last[kv.key] == kv {
				wa.push(kv)
			}
		}
	}
	wa.deliver(func() {
		wa.synced = true
		wa.see(nil)
	})
}

func (wa *simWatch) push(kv *simKV) {
	wa.deliver(func() {
		if kv.rev > wa.seen {
			wa.seen, wa.told[kv.key] = kv.rev, true
			wa.see(kv)
		}
	})
}

func (wa *simWatch) deliver(do func()) {
	gen := wa.gen
	wa.w.link.down(func() {
		s := wa.w.s
		wa.lag = max(wa.lag+1, s.now+s.between(0, s.faults.latency))
		s.at(wa.lag, wa.w, func() {
			if !wa.ended && gen == wa.gen {
				wa.heard = s.now
				do()
			}
		})
	})
}

// resume follows a reconnect: an ordered consumer begins behind what was seen.
func (wa *simWatch) resume() {
	wa.gen++
	wa.open = false
	gen := wa.gen
	s := wa.w.s
	s.at(s.now+s.between(0, time.Second), wa.w, func() {
		wa.w.link.up(func() {
			if wa.ended || gen != wa.gen {
				return
			}
			wa.open = true
			wa.place()
			for _, kv := range wa.b.log {
				if wa.replica == nil && kv.rev > wa.seen && (wa.synced || wa.b.last[kv.key] == kv) {
					wa.push(kv)
				}
			}
			if !wa.synced {
				wa.deliver(func() {
					wa.synced = true
					wa.see(nil)
				})
			}
		})
	})
}

// lose deletes a bucket, with all that watch it.
func (srv *simServer) lose(b *simBucket) {
	srv.s.logf("server: bucket %s is deleted", b.name)
	if b == srv.buckets[srv.s.cfg.bucketMap()] {
		srv.s.check.mapLost, srv.lostMap = true, true
	}
	b.gone, b.replica = true, nil
	b.last, b.log, b.pending, b.expired = make(map[string]*simKV), nil, make(map[string]bool), make(map[string]*simKV)
	for _, wa := range slices.Clone(b.watches) {
		wa.open = false
		wa.gen++ // what is on its way does not arrive
		wa.remove()
	}
}

// recreate is what the first of recreate's writes does to a bucket that is gone: its
// revisions go on above all before.
func (srv *simServer) recreate(b *simBucket) (made bool) {
	if !b.gone {
		return false
	}
	srv.s.logf("server: bucket %s is created again", b.name)
	b.gone = false
	b.seq += sequenceGap
	b.made = srv.s.now
	return true
}

func (wa *simWatch) end() {
	wa.ended = true
	wa.remove()
}

func (wa *simWatch) remove() {
	wa.b.watches = slices.DeleteFunc(wa.b.watches, func(o *simWatch) bool { return o == wa })
}

func (srv *simServer) connected(w *simWorker) {
	if w.listening != (record.Process{}) {
		srv.subs[w.listening] = w
	}
	for _, name := range srv.names {
		for _, wa := range srv.buckets[name].watches {
			if wa.w == w {
				wa.resume()
			}
		}
	}
}

func (srv *simServer) disconnected(w *simWorker) {
	for m, o := range srv.subs {
		if o == w {
			delete(srv.subs, m)
		}
	}
}

// stop ends every connection; start comes back with what is on disk.
func (srv *simServer) stop() {
	srv.s.logf("server: stopped")
	srv.up = false
	for _, w := range srv.s.workers {
		if w.link.server {
			w.link.lose(srv.s.between(0, 20*time.Millisecond))
		}
	}
	for _, sl := range srv.slots {
		if sl.consumer != nil {
			sl.consumer.waiting = nil
		}
		if srv.s.cfg.Storage.Replicas == 1 {
			sl.consumer = nil // it was in memory only
		}
	}
}

func (srv *simServer) start() {
	if srv.up {
		return
	}
	srv.s.logf("server: started")
	srv.up = true
	for _, name := range srv.names {
		b := srv.buckets[name]
		for _, kv := range slices.Clone(b.log) {
			switch {
			case kv.expires == 0 || kv.expires > srv.s.now || b.last[kv.key] != kv:
			case kv.deleted:
				srv.unmark(b, kv)
			case srv.s.faults.forget > 0 && srv.s.chance(srv.s.faults.forget):
				kv.expires = 0
			case srv.s.faults.lateClock > 0:
				srv.s.after(srv.s.between(0, srv.s.faults.lateClock), func() { srv.expire(b, kv) })
			default:
				srv.expire(b, kv)
			}
		}
	}
}

// The stream.

type simMessage struct {
	seq       uint64
	key       int
	fine      int // slot of the key in the largest slot count of the run
	n         int // of its key, from 1
	published time.Duration
}

// simName tells a message from every other one of the group. Messages of different streams may
// have the same sequence.
type simName struct {
	key int
	original
}

func (m simMessage) name() simName { return simName{m.key, m.original()} }

func (m simMessage) original() original {
	return original{m.seq, simEpoch.Add(m.published).UnixNano()}
}

type simSlot struct {
	srv *simServer
	place
	consumer *simConsumer // nil: lost, or deleted
}

// number gives a message of a slot of the largest slot count its sequence.
func (srv *simServer) number(fine int) uint64 {
	shard := fine % len(srv.seqs)
	srv.seqs[shard]++
	return srv.seqs[shard]
}

// stream returns the messages that the consumer's filter selects.
func (sl *simSlot) stream() []simMessage {
	base := len(sl.srv.stored)
	all := sl.srv.stored[sl.slot%base]
	if sl.slots == base {
		return all
	}
	var out []simMessage
	for _, m := range all {
		if m.fine%sl.slots == sl.slot {
			out = append(out, m)
		}
	}
	return out
}

type simPending struct {
	dseq uint64
	at   time.Duration
}

// simConsumer is a pinned consumer. TestConsumerModel compares it with the real server's.
type simConsumer struct {
	pin          uint64 // 0: none
	pinned       time.Duration
	sseq, dseq   uint64 // of the next delivery
	adflr, asflr uint64
	pending      map[uint64]simPending
	redeliver    []uint64
	count        map[uint64]uint64
	waiting      []*simPull
}

func newSimConsumer() *simConsumer {
	return &simConsumer{sseq: 1, dseq: 1, pending: make(map[uint64]simPending), count: make(map[uint64]uint64)}
}

// simPull is a pull that waits at the server.
type simPull struct {
	w *simWorker
	place
	pullNumber int
	n          int
	id         uint64
	expires    time.Duration
}

// simDelivery is a message, or a status, on its way to a worker.
type simDelivery struct {
	place
	pullNumber int
	status     int // 0: a message
	msg        simMessage
	dseq       uint64
	pin        uint64
	con        *simConsumer
	behind     int // messages that the consumer has yet to deliver
}

func (sl *simSlot) find(seq uint64) (simMessage, bool) {
	for _, m := range sl.srv.stored[sl.slot%len(sl.srv.stored)] {
		if m.seq == seq {
			return m, true
		}
	}
	return simMessage{}, false
}

// pull takes a pull in.
func (sl *simSlot) pull(p *simPull) {
	c := sl.consumer
	if c == nil {
		p.end(503)
		return
	}
	if c.pin != 0 {
		if p.id == c.pin {
			c.pinned = sl.srv.s.now
		} else if p.id != 0 {
			p.end(423)
			return
		}
	}
	c.waiting = append(c.waiting, p)
	sl.srv.s.after(p.expires-sl.srv.s.now, func() {
		if i := slices.Index(c.waiting, p); i >= 0 {
			c.waiting = slices.Delete(c.waiting, i, i+1)
			p.end(408)
		}
	})
	sl.signal()
}

func (p *simPull) end(status int) {
	d := simDelivery{place: p.place, pullNumber: p.pullNumber, status: status}
	p.w.link.down(func() { p.w.dispatch(d) })
}

// signal delivers what can be delivered.
func (sl *simSlot) signal() {
	c := sl.consumer
	for c != nil && len(c.waiting) > 0 {
		m, again, ok := sl.nextMessage()
		if !ok {
			return
		}
		p := c.nextWaiting(sl.srv)
		if p == nil {
			if again {
				c.redeliver = append([]uint64{m.seq}, c.redeliver...)
			}
			return
		}
		sl.deliver(p, m, again)
	}
}

func (sl *simSlot) nextMessage() (m simMessage, again, ok bool) {
	c := sl.consumer
	for len(c.redeliver) > 0 {
		seq := c.redeliver[0]
		c.redeliver = c.redeliver[1:]
		if m, ok := sl.find(seq); ok {
			return m, true, true
		}
		pe := c.pending[seq]
		delete(c.pending, seq)
		c.moveFloor(pe.dseq, seq)
	}
	if len(c.pending) >= sl.srv.s.cfg.Delivery.InFlight { // MaxAckPending
		return m, false, false
	}
	for _, m := range sl.stream() {
		if m.seq >= c.sseq {
			return m, false, true
		}
	}
	return m, false, false
}

// nextWaiting finds the pull that gets the next message, and pins its client.
func (c *simConsumer) nextWaiting(srv *simServer) *simPull {
	assign, cycled := c.pin == 0, 0
	for len(c.waiting) > 0 {
		p := c.waiting[0]
		switch {
		case assign && p.id != 0, !assign && p.id != 0 && p.id != c.pin:
			c.waiting = c.waiting[1:]
			p.end(423)
			continue
		case assign:
			srv.pins++
			c.pin, c.pinned = srv.pins, srv.s.now
			p.id = c.pin
			c.watchPin(srv)
		case p.id == 0:
			c.waiting = append(c.waiting[1:], p)
			if cycled++; cycled >= len(c.waiting) {
				return nil
			}
			continue
		}
		if p.w.link.server {
			if p.n--; p.n == 0 {
				c.waiting = c.waiting[1:]
			} else {
				c.waiting = append(c.waiting[1:], p)
			}
			return p
		}
		c.waiting = c.waiting[1:] // nobody listens any more
		assign = false
	}
	return nil
}

func (c *simConsumer) watchPin(srv *simServer) {
	pin := c.pin
	var look func()
	look = func() {
		if c.pin != pin {
			return
		}
		if left := c.pinned + pinnedTTL - srv.s.now; left > 0 {
			srv.s.after(left, look)
			return
		}
		c.pin = 0
		for _, sl := range srv.slots {
			if sl.consumer == c {
				sl.signal()
			}
		}
	}
	srv.s.after(pinnedTTL, look)
}

// behind returns how many messages the consumer has yet to deliver for the first time.
func (sl *simSlot) behind() (n int) {
	for _, m := range sl.stream() {
		if m.seq >= sl.consumer.sseq {
			n++
		}
	}
	return n
}

func (sl *simSlot) deliver(p *simPull, m simMessage, again bool) {
	c := sl.consumer
	if again {
		c.count[m.seq]++
		if pe, ok := c.pending[m.seq]; ok {
			pe.at = sl.srv.s.now
			c.pending[m.seq] = pe
		} else {
			c.pending[m.seq] = simPending{dseq: c.dseq, at: sl.srv.s.now}
		}
	} else {
		c.sseq = m.seq + 1
		c.pending[m.seq] = simPending{dseq: c.dseq, at: sl.srv.s.now}
	}
	d := simDelivery{place: sl.place, pullNumber: p.pullNumber, msg: m, dseq: c.dseq, pin: c.pin, con: c, behind: sl.behind()}
	c.dseq++
	p.w.link.down(func() { p.w.dispatch(d) })
	sl.watchAck(c, m.seq)
}

// watchAck delivers again what nobody acknowledges in time.
func (sl *simSlot) watchAck(c *simConsumer, seq uint64) {
	s := sl.srv.s
	pe, ok := c.pending[seq]
	if !ok {
		return
	}
	s.after(pe.at+s.cfg.Delivery.AckWait-s.now, func() {
		now, ok := c.pending[seq]
		switch {
		case !ok || sl.consumer != c:
		case s.now < now.at+s.cfg.Delivery.AckWait:
			sl.watchAck(c, seq)
		case !slices.Contains(c.redeliver, seq):
			s.logf("server: slot %d, message %d was not acknowledged in time", sl.slot, seq)
			c.redeliver = append(c.redeliver, seq)
			now.at = s.now
			c.pending[seq] = now
			sl.signal()
			sl.watchAck(c, seq)
		}
	})
}

// moveFloor moves the acknowledgement floor when a message is settled: behind everything if
// nothing is left, and if it was the first, up to what is left.
func (c *simConsumer) moveFloor(dseq, sseq uint64) {
	if len(c.pending) == 0 {
		c.adflr, c.asflr = c.dseq-1, c.sseq-1
		return
	}
	if dseq != c.adflr+1 {
		return
	}
	c.adflr, c.asflr = dseq, sseq
	for seq := sseq + 1; seq < c.sseq; seq++ {
		if pe, ok := c.pending[seq]; ok {
			c.adflr, c.asflr = pe.dseq-1, seq-1
			return
		}
	}
}

// ack settles a message, and reports whether the server answers that: it ignores what it has not
// delivered since a reset.
func (sl *simSlot) ack(d simDelivery) bool {
	c := sl.consumer
	if c == nil || d.msg.seq >= sl.next() {
		return false
	}
	sl.srv.loseUnwanted(sl, d.msg.seq)
	pe, pending := c.pending[d.msg.seq]
	delete(c.pending, d.msg.seq)
	c.redeliver = slices.DeleteFunc(c.redeliver, func(q uint64) bool { return q == d.msg.seq })
	if pending {
		c.moveFloor(pe.dseq, d.msg.seq)
	}
	if m, ok := sl.find(d.msg.seq); ok {
		sl.removeLater(m)
	}
	sl.signal()
	return true
}

// next is the sequence from which on the consumer looks for messages: if it has none left to
// deliver, behind all of the stream.
func (sl *simSlot) next() uint64 {
	if sl.undelivered() {
		return sl.consumer.sseq
	}
	return max(sl.consumer.sseq, sl.srv.seqs[sl.slot%len(sl.srv.seqs)]+1)
}

// loseUnwanted removes the message of another slot that has a sequence which is acknowledged, if
// that slot has no consumer yet: the server goes by the sequence, and removes what no consumer
// wants. After a power cut an acknowledgement may be of a message that is lost.
func (srv *simServer) loseUnwanted(acknowledged *simSlot, seq uint64) {
	for _, sl := range srv.slots {
		sameStream := sl.slot%len(srv.seqs) == acknowledged.slot%len(srv.seqs)
		if !sameStream || sl.consumer != nil || sl.place == acknowledged.place || sl.generation != acknowledged.generation {
			continue
		}
		for _, m := range sl.stream() {
			if m.seq == seq {
				srv.s.logf("server: message %d (key %d, %d) is removed by the acknowledgement of another one", m.seq, m.key, m.n)
				sl.removeMessage(m)
			}
		}
	}
}

// removeSettled removes what the consumer has as settled, as the server does when it starts.
func (sl *simSlot) removeSettled() {
	at := &sl.srv.stored[sl.slot%len(sl.srv.stored)]
	*at = slices.DeleteFunc(*at, func(m simMessage) bool { return m.fine%sl.slots == sl.slot && m.seq <= sl.consumer.asflr })
}

// has reports whether a message is in the stream of a slot, and says if another one has its
// sequence.
func (srv *simServer) has(at place, o original) (is bool, other string) {
	for i, stored := range srv.stored {
		if i%len(srv.seqs) != at.slot%len(srv.seqs) {
			continue
		}
		for _, m := range stored {
			if m.seq == o.sequence {
				return m.original() == o, map[bool]string{false: "another message has its sequence"}[m.original() == o]
			}
		}
	}
	return false, ""
}

// messages returns how many messages a stream has.
func (srv *simServer) messages(shard int) (n int) {
	for i, stored := range srv.stored {
		if i%len(srv.seqs) == shard {
			n += len(stored)
		}
	}
	return n
}

// removeLater removes a settled message from the stream. With replicas the server answers
// before that; it matters where several messages are in flight.
func (sl *simSlot) removeLater(m simMessage) {
	s := sl.srv.s
	if s.cfg.Delivery.InFlight == 1 || s.cfg.Storage.Replicas == 1 {
		sl.removeMessage(m)
		return
	}
	cuts := s.check.cuts
	var remove func()
	remove = func() {
		stored, ok := sl.find(m.seq)
		switch {
		case cuts != s.check.cuts || !ok || stored != m: // lost with the power
		case !sl.srv.up:
			s.after(20*time.Millisecond, remove) // first thing when it starts
		default:
			sl.removeMessage(m)
		}
	}
	s.after(s.between(0, removalLag/2), remove)
}

func (sl *simSlot) removeMessage(m simMessage) {
	sl.srv.s.check.removed(m)
	at := &sl.srv.stored[sl.slot%len(sl.srv.stored)]
	*at = slices.DeleteFunc(*at, func(o simMessage) bool { return o.seq == m.seq })
}

func (sl *simSlot) nak(d simDelivery) {
	c := sl.consumer
	if c == nil || d.dseq <= c.adflr || d.dseq > c.dseq {
		return
	}
	if _, ok := c.pending[d.msg.seq]; !ok {
		return
	}
	if !slices.Contains(c.redeliver, d.msg.seq) {
		c.redeliver = append(c.redeliver, d.msg.seq)
	}
	sl.signal()
}

func (sl *simSlot) progress(d simDelivery) {
	if c := sl.consumer; c != nil {
		if pe, ok := c.pending[d.msg.seq]; ok {
			pe.at = sl.srv.s.now
			c.pending[d.msg.seq] = pe
		}
	}
}

func (sl *simSlot) unpin() error {
	if sl.consumer == nil {
		return errNoConsumer
	}
	sl.consumer.pin = 0
	sl.signal()
	return nil
}

// reset goes back to the acknowledgement floor.
func (sl *simSlot) reset() error {
	c := sl.consumer
	if c == nil {
		return errNoConsumer
	}
	clear(c.pending)
	clear(c.count)
	c.redeliver = nil
	c.sseq, c.dseq = c.asflr+1, 1
	c.adflr = 0
	sl.signal()
	return nil
}

var errOverlap = errors.New("filtered consumer not unique on workqueue stream")

// create makes the consumer, unless another one selects some of its messages.
func (sl *simSlot) create() error {
	if sl.consumer != nil {
		return nil
	}
	for _, o := range sl.srv.slots {
		if o.consumer != nil && o.generation != sl.generation && slices.Contains(sl.overlapping(o.generation), o.slot) {
			return errOverlap
		}
	}
	sl.consumer = newSimConsumer()
	return nil
}

// remake deletes the streams, with everything in them, and makes them again.
// Consumers come back with the first worker that misses them, or at once.
//
// The server ends the pulls by a queue of the stream, which it drops with the stream. So
// most clients learn nothing of it when it is fast (nats-server 2.15.2).
func (srv *simServer) remake(provisioned bool) {
	srv.s.logf("server: the streams are made again")
	srv.made = srv.s.now
	clear(srv.seqs)
	clear(srv.stored)
	silently := srv.s.chance(0.5)
	for _, sl := range srv.slots {
		there := sl.consumer != nil
		if there && silently {
			sl.consumer.waiting = nil
		}
		if sl.remove(); there && provisioned {
			sl.consumer = newSimConsumer()
		}
	}
	srv.s.check.remade()
}

// remove deletes the consumer, and ends the pulls for it.
func (sl *simSlot) remove() {
	if sl.consumer == nil {
		return
	}
	waiting := sl.consumer.waiting
	sl.consumer = nil
	for _, p := range waiting {
		p.end(409)
	}
}
