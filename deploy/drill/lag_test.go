//go:build !race

package drill

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// lagging is a connection on which whatever comes and goes is late. Nobody who holds a lock waits on it: in a bubble no time would pass.
type lagging struct {
	net.Conn
	in, out lane
}

// lane holds what is under way in one direction.
type lane struct {
	delay *atomic.Int64 // ns
	late  bool          // its end is late, too
	mu    sync.Mutex
	queue []parcel
	err   error         // after the last parcel
	more  chan struct{} // of size one
}

type parcel struct {
	at   time.Time
	data []byte
}

func newLagging(c net.Conn, delay *atomic.Int64) *lagging {
	l := &lagging{Conn: c, in: lane{delay: delay, more: make(chan struct{}, 1)}, out: lane{delay: delay, late: true, more: make(chan struct{}, 1)}}
	go func() {
		for {
			b := make([]byte, 32<<10)
			n, err := c.Read(b)
			l.in.put(b[:n], err)
			if err != nil {
				return
			}
		}
	}()
	go func() {
		b := make([]byte, 32<<10)
		for {
			n, err := l.out.take(b)
			if err == nil {
				_, err = c.Write(b[:n])
			}
			if err != nil {
				_ = c.Close()
				return
			}
		}
	}()
	return l
}

func (l *lane) put(b []byte, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, parcel{time.Now(), append([]byte(nil), b...)})
	if l.err == nil {
		l.err = err
	}
	select {
	case l.more <- struct{}{}:
	default:
	}
}

// take returns what is due, and waits until something is.
func (l *lane) take(b []byte) (int, error) {
	for {
		n, wait, err := l.due(b)
		if n > 0 || err != nil {
			return n, err
		}
		if wait {
			time.Sleep(10 * time.Millisecond)
		} else {
			<-l.more
		}
	}
}

func (l *lane) due(b []byte) (n int, wait bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return 0, false, l.err
	}
	p := &l.queue[0]
	if (l.err == nil || l.late) && time.Since(p.at) < time.Duration(l.delay.Load()) {
		return 0, true, nil
	}
	if len(p.data) == 0 {
		return 0, false, l.err
	}
	n = copy(b, p.data)
	if p.data = p.data[n:]; len(p.data) == 0 {
		l.queue = l.queue[1:]
	}
	return n, false, nil
}

// Read implements net.Conn.
func (l *lagging) Read(b []byte) (int, error) { return l.in.take(b) }

// Write implements net.Conn. It does not wait.
func (l *lagging) Write(b []byte) (int, error) {
	l.out.put(b, nil)
	return len(b), nil
}

// Close implements net.Conn.
func (l *lagging) Close() error {
	l.in.put(nil, io.EOF)
	l.out.put(nil, io.EOF)
	return nil
}

// SetDeadline implements net.Conn; there are none.
func (l *lagging) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn; there are none.
func (l *lagging) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn; there are none.
func (l *lagging) SetWriteDeadline(time.Time) error { return nil }
