package network

import (
	"errors"
	"net"
	"sync"
)

// merged is one listener of several.
type merged struct {
	net.Listener // the first one, for its address

	all    []net.Listener
	conns  chan net.Conn
	failed chan error
	closed chan struct{}
	once   sync.Once
}

// Merge returns a listener that accepts what any of several does. Its address is that of
// the first one.
func Merge(first net.Listener, others ...net.Listener) net.Listener {
	m := &merged{Listener: first, all: append([]net.Listener{first}, others...),
		conns: make(chan net.Conn), failed: make(chan error), closed: make(chan struct{})}
	for _, l := range m.all {
		go m.accept(l)
	}
	return m
}

// accept passes on what one of the listeners accepts, until either is closed.
func (m *merged) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			select {
			case m.failed <- err:
			case <-m.closed:
			}
			return
		}
		select {
		case m.conns <- c:
		case <-m.closed:
			_ = c.Close() // nobody accepts it any more
			return
		}
	}
}

func (m *merged) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case err := <-m.failed:
		return nil, err
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *merged) Close() error {
	var errs []error
	m.once.Do(func() {
		close(m.closed)
		for _, l := range m.all {
			errs = append(errs, l.Close())
		}
	})
	return errors.Join(errs...)
}
