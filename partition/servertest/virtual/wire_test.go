//go:build !race

package virtual

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// link is one client's way to the server. It can be cut, and it can be frozen: then
// nothing gets through, and neither end sees a reason why.
type link struct {
	serving func() *natstest.Server
	broken  *tamper // of a client that is broken on purpose; nil: none is

	latency atomic.Int64 // in nanoseconds, one way
	frozen  atomic.Int64 // in Unix nanoseconds, until when nothing gets through

	mu   sync.Mutex
	away bool
	conn *wire
}

func newLink(serving func() *natstest.Server, latency time.Duration) *link {
	l := &link{serving: serving}
	l.latency.Store(int64(latency))
	return l
}

// InProcessConn connects to the server that runs now.
func (l *link) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.serving()
	if l.away || s == nil || time.Now().Before(l.frozenUntil()) {
		return nil, errors.New("connection refused")
	}
	c, err := s.InProcessConn()
	if err != nil {
		return nil, err
	}
	if l.conn != nil {
		l.conn.sever() // what it holds back would wait beyond the end of the run
	}
	l.conn = newWire(c, l)
	return l.conn, nil
}

// cut breaks the connection, whose ends notice at once, and prevents or allows others.
func (l *link) cut(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if away && l.conn != nil {
		l.conn.sever()
	}
}

// hold keeps back what is sent to the server, until its end.
func (l *link) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.held.Store(true)
	}
}

// sever breaks the connection; the client may connect again.
func (l *link) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.sever()
	}
}

// freeze holds back everything that is sent in either direction for a while.
func (l *link) freeze(d time.Duration) { l.frozen.Store(time.Now().Add(d).UnixNano()) }

func (l *link) frozenUntil() time.Time { return time.Unix(0, l.frozen.Load()) }

// wire is a connection whose bytes take time, except those of the handshake: the client
// holds its lock until it is over, and virtual time stands still as long as any
// goroutine waits for a lock. For the same reason a write never blocks.
type wire struct {
	net.Conn
	in, out lane
	greeted atomic.Bool // the handshake is over
	held    atomic.Bool // nothing reaches the server any more

	up, down frames // of a client that is broken on purpose
}

func newWire(c net.Conn, l *link) *wire {
	w := &wire{Conn: c}
	w.in, w.out = lane{wire: w, link: l, more: make(chan struct{}, 1)}, lane{wire: w, link: l, more: make(chan struct{}, 1)}
	go func() {
		b := make([]byte, 32<<10)
		for {
			n, err := c.Read(b)
			_ = w.in.put(l.broken.down(w, b[:n]), err)
			if err != nil {
				return
			}
		}
	}()
	go func() {
		b := make([]byte, 32<<10)
		for {
			n, err := w.out.take(b)
			if err == nil {
				_, err = c.Write(b[:n])
			}
			if err != nil {
				_ = c.Close()
				return
			}
		}
	}()
	return w
}

// sever ends the connection, and what is under way is lost.
func (w *wire) sever() {
	w.in.drop()
	w.out.drop()
	_ = w.Conn.Close()
}

// Read implements net.Conn.
func (w *wire) Read(b []byte) (int, error) {
	n, err := w.in.take(b)
	// A client connects with CONNECT and PING; the answer is the end.
	if !w.greeted.Load() && bytes.Contains(b[:n], []byte("PONG")) {
		w.greeted.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (w *wire) Write(b []byte) (int, error) {
	if err := w.out.put(w.out.link.broken.up(w, b), nil); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close implements net.Conn. What was written before still arrives.
func (w *wire) Close() error {
	w.in.drop()
	_ = w.out.put(nil, io.EOF)
	return nil
}

// SetDeadline implements net.Conn; there are none.
func (w *wire) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn; there are none.
func (w *wire) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn; there are none.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// lane is one direction of a wire.
type lane struct {
	wire *wire
	link *link
	more chan struct{} // of size one

	mu    sync.Mutex
	queue []parcel
	err   error // after the last parcel
}

type parcel struct {
	at   time.Time // when it was sent
	data []byte
	free bool // nothing holds it back
	cut  bool // a part of it was taken
}

// put sends data, or the end of the connection. It returns the end if that was sent
// before.
func (l *lane) put(b []byte, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if len(b) > 0 {
		l.queue = append(l.queue, parcel{at: time.Now(), data: append([]byte(nil), b...)})
	}
	l.err = err
	l.wake()
	return nil
}

// jump sends data ahead of everything that is held back.
func (l *lane) jump(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := 0
	for at < len(l.queue) && (l.queue[at].cut || l.queue[at].free) {
		at++
	}
	l.queue = slices.Insert(l.queue, at, parcel{at: time.Now(), data: append([]byte(nil), b...), free: true})
	l.wake()
}

func (l *lane) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue, l.err = nil, net.ErrClosed
	l.wake()
}

func (l *lane) wake() {
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// take returns what has arrived, and waits until something has.
func (l *lane) take(b []byte) (int, error) {
	for {
		n, wait, err := l.arrived(b)
		if n > 0 || err != nil {
			return n, err
		}
		if wait < 0 {
			<-l.more
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-l.more:
			t.Stop()
		}
	}
}

// arrived returns what has arrived, or how long to wait for it; less than 0: until
// something is sent.
func (l *lane) arrived(b []byte) (n int, wait time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l == &l.wire.out && l.wire.held.Load() {
		return 0, -1, l.err
	}
	frozen, latency := time.Until(l.link.frozenUntil()), time.Duration(l.link.latency.Load())
	if !l.wire.greeted.Load() {
		frozen, latency = 0, 0
	}
	for len(l.queue) > 0 && n < len(b) {
		p := &l.queue[0]
		if wait = max(frozen, time.Until(p.at.Add(latency))); wait > 0 && !p.free {
			return n, wait, nil
		}
		k := copy(b[n:], p.data)
		n += k
		p.cut = true
		if p.data = p.data[k:]; len(p.data) == 0 {
			l.queue = l.queue[1:]
		}
	}
	switch {
	case n > 0:
		return n, 0, nil
	case l.err != nil && frozen > 0 && !errors.Is(l.err, net.ErrClosed):
		return 0, frozen, nil
	case l.err != nil:
		return 0, 0, l.err
	}
	return 0, -1, nil
}
