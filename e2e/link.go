package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// A link is the network between one process and one server: it passes on what
// either says, and can be cut. While it is cut, nothing arrives and neither end is
// told, as when a cable is pulled; what was on its way arrives when it is whole
// again.
type link struct {
	listener net.Listener
	to       string

	mu      sync.Mutex
	changed *sync.Cond
	blocked [2]bool // by direction
	conns   map[net.Conn]bool
	closed  bool
	wg      sync.WaitGroup
}

// The directions of a link.
const (
	toServer = iota
	toClient
)

func newLink(ctx context.Context, to string) (*link, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("making a link to %s: %w", to, err)
	}
	k := &link{listener: l, to: to, conns: map[net.Conn]bool{}}
	k.changed = sync.NewCond(&k.mu)
	k.wg.Go(k.accept)
	return k, nil
}

func (k *link) address() string { return k.listener.Addr().String() }

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.wg.Go(func() { k.serve(c) })
	}
}

func (k *link) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	// A client that connects while it is cut waits for an answer.
	if !k.wait(toServer) {
		return
	}
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", k.to)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.conns[client], k.conns[server] = true, true
	k.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { k.pass(server, client, toServer) })
	wg.Go(func() { k.pass(client, server, toClient) })
	wg.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, client)
	delete(k.conns, server)
}

// pass copies one direction until either end closes.
func (k *link) pass(dst, src net.Conn, direction int) {
	defer func() { _ = dst.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if !k.wait(direction) {
			return
		}
		if n > 0 {
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait returns when the direction is whole; false means that the link is closed.
func (k *link) wait(direction int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.blocked[direction] && !k.closed {
		k.changed.Wait()
	}
	return !k.closed
}

func (k *link) block(server, client bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.blocked = [2]bool{toServer: server, toClient: client}
	k.changed.Broadcast()
}

// reset ends all connections, as when both ends learn of a cut.
func (k *link) reset() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
}

func (k *link) close() error {
	k.mu.Lock()
	k.closed = true
	k.changed.Broadcast()
	for c := range k.conns {
		_ = c.Close()
	}
	k.mu.Unlock()
	err := k.listener.Close()
	k.wg.Wait()
	return err
}

// links are those of one process to all servers.
type links []*link

// newLinks makes links to the servers of a list of URLs, and returns with them
// the list that leads through them.
func newLinks(ctx context.Context, urls string) (links, string, error) {
	var all links
	var through []string
	for u := range strings.SplitSeq(urls, ",") {
		k, err := newLink(ctx, strings.TrimPrefix(u, "nats://"))
		if err != nil {
			return nil, "", errors.Join(err, all.Close())
		}
		all = append(all, k)
		through = append(through, "nats://"+k.address())
	}
	return all, strings.Join(through, ","), nil
}

// cut cuts the links in the directions that a mode names.
func (l links) cut(m cutMode) {
	for _, k := range l {
		k.block(m != cutToClient, m != cutToServer)
	}
}

// heal makes the links whole again.
func (l links) heal(m cutMode) {
	for _, k := range l {
		if m == cutAndReset {
			k.reset()
		}
		k.block(false, false)
	}
}

// Close ends the links and all connections.
func (l links) Close() error {
	var errs []error
	for _, k := range l {
		errs = append(errs, k.close())
	}
	return errors.Join(errs...)
}

// cutMode says how a network is cut.
type cutMode string

const (
	cutBoth     cutMode = "both ways"
	cutToServer cutMode = "towards the servers"
	cutToClient cutMode = "from the servers"
	cutAndReset cutMode = "both ways, and the connections end"
)
