package gem

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender/hsms"
	"github.com/muster-dev/muster/defender/secs"
)

// Variables of the equipment.
const (
	clockID  = 1
	runID    = 2 // of chamber k: runID + 100 k, and so on
	recipeID = 3
	stepID   = 4
	sensorID = 10 // the first of several
	chamberV = 100
)

// Events of the equipment: of chamber k startEvent + 10 k and so on.
const (
	startEvent = 1001
	endEvent   = 1002
)

// equipment is a tool that speaks GEM, written for tests of the host. Its clock is one of
// samples: it stands between two, so that what a run has is known exactly, however slow the
// machine is. It sends one message at a time and waits for the answer. Without a connection
// it spools, if it can.
type equipment struct {
	t        testing.TB
	listener net.Listener
	address  string
	spoolCap int // messages; 0 is equipment without a spool
	transmit int // spooled messages per request; 0 is all
	offline  bool
	refuse   map[string]byte // answers other than 0, by message
	forget   bool            // a new connection finds equipment that was started again

	ctx    context.Context
	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu        sync.Mutex
	changed   *sync.Cond
	conn      *hsms.Conn
	online    bool
	now       time.Time
	variables map[uint32]secs.Item
	reports   map[uint32][]uint32
	links     map[uint32][]uint32
	enabled   map[uint32]bool
	alarms    map[uint32]bool
	traces    map[uint32]*tracing
	spools    bool // the host has chosen streams
	pending   []secs.Message
	taken     int // messages that were pending before: the number of the first that is
	budget    int // of spooled messages that may be sent; without a spool all may
	spooled   bool
	lost      int // messages that were neither sent nor spooled
	asked     []string
	terminal  []string
	commands  []string
}

type tracing struct {
	id, group uint32
	period    string
	variables []uint32
	number    uint32
	rows      []secs.Item
}

func startEquipment(t testing.TB, change func(*equipment)) *equipment {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &equipment{
		t: t, listener: l, address: l.Addr().String(), spoolCap: 1 << 20,
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), variables: map[uint32]secs.Item{},
		reports: map[uint32][]uint32{}, links: map[uint32][]uint32{}, enabled: map[uint32]bool{}, alarms: map[uint32]bool{}, traces: map[uint32]*tracing{},
	}
	e.changed = sync.NewCond(&e.mu)
	if change != nil {
		change(e)
	}
	e.online = !e.offline
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.ended.Go(e.accept)
	e.ended.Go(e.send)
	t.Cleanup(e.stop)
	return e
}

func (e *equipment) stop() {
	e.cancel()
	_ = e.listener.Close()
	e.disconnect()
	e.mu.Lock()
	e.changed.Broadcast()
	e.mu.Unlock()
	e.ended.Wait()
}

// disconnect closes the connection, if there is one. What is enqueued from now on is spooled
// or lost.
func (e *equipment) disconnect() {
	e.mu.Lock()
	conn := e.conn
	e.mu.Unlock()
	if conn == nil {
		return
	}
	e.connected(nil)
	conn.Close()
}

func (e *equipment) accept() {
	for {
		raw, err := e.listener.Accept()
		if err != nil {
			return
		}
		conn, err := hsms.Accept(e.ctx, raw, hsms.Config{Timers: hsms.Timers{Reply: 2 * time.Second, NotSelected: time.Second}})
		if err != nil {
			continue // the link was cut before it was selected
		}
		if e.forget {
			e.startAgain()
		}
		e.serve(conn)
		e.connected(nil)
	}
}

// serve answers the host until the connection ends.
func (e *equipment) serve(conn *hsms.Conn) {
	for p := range conn.Primaries() {
		answer, ok := e.answer(p.Message)
		if !ok {
			_ = conn.Abort(p)
			continue
		}
		_ = conn.Reply(p, answer)
		if p.Is(1, 13) { // communications are established
			e.connected(conn)
		}
	}
}

// connected notes that there is a connection, or none. What waits then is spooled, or lost.
func (e *equipment) connected(conn *hsms.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.conn = conn
	if len(e.pending) > 0 && conn == nil {
		e.shelve()
	}
	e.changed.Broadcast()
}

// shelve spools what waits, or drops it. The caller holds the lock.
func (e *equipment) shelve() {
	if e.spoolCap == 0 || !e.spools {
		e.lost += len(e.pending)
		e.drop(len(e.pending))
		return
	}
	e.spooled, e.budget = true, 0
	if more := len(e.pending) - e.spoolCap; more > 0 { // the oldest are overwritten
		e.drop(more)
		e.lost += more
	}
}

// startAgain forgets what the host has defined.
func (e *equipment) startAgain() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += len(e.pending)
	e.drop(len(e.pending))
	e.spooled = false
	clear(e.reports)
	clear(e.links)
	clear(e.enabled)
	clear(e.traces)
}

// send sends what waits, one message after the other.
func (e *equipment) send() {
	for {
		m, number, conn := e.next()
		if conn == nil {
			return
		}
		_, err := conn.Request(e.ctx, m)
		e.mu.Lock()
		switch {
		case err == nil && e.taken == number: // it was not dropped meanwhile
			e.drop(1)
			e.budget--
			e.spooled = e.spooled && len(e.pending) > 0
		case err != nil && e.conn == conn: // the accepting goroutine will notice soon
			e.conn = nil
			e.shelve()
		}
		e.changed.Broadcast()
		e.mu.Unlock()
		if err != nil { // it may be a reply that is overdue: the link itself is up then
			conn.Close()
		}
	}
}

// drop takes messages from the front of those that wait. The caller holds the lock.
func (e *equipment) drop(n int) {
	e.pending = slices.Delete(e.pending, 0, n)
	e.taken += n
}

// next waits for a message that may be sent, and returns its number, too. It returns no connection
// once all ends.
func (e *equipment) next() (secs.Message, int, *hsms.Conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.ctx.Err() == nil {
		if e.conn != nil && len(e.pending) > 0 && (!e.spooled || e.budget > 0) {
			return e.pending[0], e.taken, e.conn
		}
		e.changed.Wait()
	}
	return secs.Message{}, 0, nil
}

// enqueue has a message be sent or spooled. The caller holds the lock.
func (e *equipment) enqueue(m secs.Message) {
	e.pending = append(e.pending, m)
	if e.conn == nil || e.spooled && len(e.pending) > e.spoolCap {
		budget := e.budget
		e.shelve()
		e.budget = budget
	}
	e.changed.Broadcast()
}

// waitFor waits until a condition holds, which it asks for with the lock.
func (e *equipment) waitFor(condition func() bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !condition() && e.ctx.Err() == nil && e.t.Context().Err() == nil {
		e.changed.Wait()
	}
}

// sent waits until all messages are with the host, and acknowledged.
func (e *equipment) sent() { e.waitFor(func() bool { return len(e.pending) == 0 }) }

// traced waits until as many traces have been started.
func (e *equipment) traced(n int) { e.waitFor(func() bool { return len(e.traces) >= n }) }

// answer returns the answer to a message; false if it is aborted.
func (e *equipment) answer(m secs.Message) (secs.Item, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.changed.Broadcast()
	e.asked = append(e.asked, m.Name())
	if code, ok := e.refuse[m.Name()]; ok && m.Is(1, 13) {
		return secs.L(secs.B(code), secs.L()), true
	} else if ok {
		return secs.B(code), true
	}
	if !e.online && !m.Is(1, 13) && !m.Is(1, 17) {
		return secs.Item{}, false
	}
	switch {
	case m.Is(1, 1):
		return secs.L(secs.A("go-etch"), secs.A("1.0")), true
	case m.Is(1, 13):
		return secs.L(secs.B(0), secs.L(secs.A("go-etch"), secs.A("1.0"))), true
	case m.Is(1, 17):
		e.online = true
		return secs.B(0), true
	case m.Stream == 2, m.Is(5, 3):
		return e.define(m)
	case m.Is(6, 23) && e.spoolCap > 0:
		return secs.B(e.unload(m)), true
	case m.Is(10, 3):
		text, _ := m.Body().Items[1].Text()
		e.terminal = append(e.terminal, text)
		return secs.B(0), true
	}
	return secs.Item{}, false
}

func (e *equipment) unload(m secs.Message) byte {
	switch code, _ := m.Body().Code(); {
	case !e.spooled:
		return 2
	case code == 1:
		e.drop(len(e.pending))
		e.spooled = false
		return 0
	case e.budget > 0:
		return 1
	}
	e.budget = e.transmit
	if e.transmit == 0 {
		e.budget = len(e.pending)
	}
	return 0
}

// idsOf returns the IDs in a list.
func idsOf(i secs.Item) []uint32 {
	var ids []uint32
	for _, item := range i.Items {
		ids = append(ids, idOf(item))
	}
	return ids
}

// define handles a definition of the host, in the order of GEM: reports, then links, then
// what is enabled.
func (e *equipment) define(m secs.Message) (secs.Item, bool) {
	body := m.Body()
	switch {
	case m.Is(2, 33) && len(body.Items[1].Items) == 0:
		clear(e.reports)
		clear(e.links)
		clear(e.enabled)
	case m.Is(2, 33):
		for _, r := range body.Items[1].Items {
			for _, id := range idsOf(r.Items[1]) {
				if _, ok := e.variables[id]; !ok && id != clockID {
					return secs.B(4), true
				}
			}
			e.reports[idOf(r.Items[0])] = idsOf(r.Items[1])
		}
	case m.Is(2, 35):
		for _, l := range body.Items[1].Items {
			for _, id := range idsOf(l.Items[1]) {
				if e.reports[id] == nil {
					return secs.B(5), true
				}
			}
			e.links[idOf(l.Items[0])] = idsOf(l.Items[1])
		}
	case m.Is(2, 37):
		enable, _ := body.Items[0].Int(0)
		if len(body.Items[1].Items) == 0 {
			clear(e.enabled)
		}
		for _, id := range idsOf(body.Items[1]) {
			e.enabled[id] = enable != 0
		}
	case m.Is(2, 23):
		return secs.B(e.startTrace(body)), true
	case m.Is(2, 41):
		e.commands = append(e.commands, body.String())
		return secs.L(secs.B(0), secs.L()), true
	case m.Is(2, 43) && e.spoolCap > 0:
		e.spools = true
		return secs.L(secs.B(0), secs.L()), true
	case m.Is(5, 3):
		e.alarms[idOf(body.Items[1])] = true
	default:
		return secs.Item{}, false
	}
	return secs.B(0), true
}

func (e *equipment) startTrace(body secs.Item) byte {
	t := &tracing{id: idOf(body.Items[0]), group: idOf(body.Items[3]), variables: idsOf(body.Items[4])}
	t.period, _ = body.Items[1].Text()
	for _, id := range t.variables {
		if _, ok := e.variables[id]; !ok {
			return 4
		}
	}
	e.traces[t.id] = t
	return 0
}

// set sets a variable.
func (e *equipment) set(id uint32, value secs.Item) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.variables[id] = value
}

// stamp16 is the clock as S6F1 and reports have it.
func (e *equipment) stamp16() secs.Item {
	return secs.A(e.now.Format("20060102150405") + fmt.Sprintf("%02d", e.now.Nanosecond()/10_000_000))
}

// event lets an event occur.
func (e *equipment) event(id uint32) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.enabled[id] {
		return
	}
	reports := secs.L()
	for _, r := range e.links[id] {
		values := secs.L()
		for _, v := range e.reports[r] {
			if v == clockID {
				values.Items = append(values.Items, e.stamp16())
			} else {
				values.Items = append(values.Items, e.variables[v])
			}
		}
		reports.Items = append(reports.Items, secs.L(secs.Uint(r), values))
	}
	e.enqueue(secs.New(6, 11, secs.L(secs.Uint(1), secs.Uint(id), reports)))
}

// alarm sets an alarm.
func (e *equipment) alarm(id uint32, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.enqueue(secs.New(5, 1, secs.L(secs.B(0x80|4), secs.Uint(id), secs.A(text))))
}

// tick lets the clock go on by some time, and takes one sample of all traces.
func (e *equipment) tick(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = e.now.Add(by)
	for _, t := range e.traces {
		t.number++
		for _, id := range t.variables {
			t.rows = append(t.rows, e.variables[id])
		}
		if t.number%t.group == 0 {
			e.enqueue(secs.New(6, 1, secs.L(secs.Uint(t.id), secs.Uint(t.number), e.stamp16(), secs.L(t.rows...))))
			t.rows = nil
		}
	}
}

// float4 is a number of four bytes, as equipment often has them.
func float4(bits uint32) secs.Item {
	return secs.Item{Format: secs.F4, Data: binary.BigEndian.AppendUint32(nil, bits)}
}
