package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
)

// A link is the network between one process and one server: it passes on what
// either says, and can be cut. While it is cut, nothing arrives and nobody is
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
	// Who connects while it is cut waits for an answer.
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

// Links are those of one process to all servers.
type Links []*link

// NewLinks makes links to the servers of a list of URLs, and returns with them
// the list that leads through them.
func NewLinks(ctx context.Context, urls string) (Links, string, error) {
	var all Links
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

// Cut cuts the links in the directions that a mode names.
func (all Links) Cut(m CutMode) {
	for _, k := range all {
		k.block(m != CutToClient, m != CutToServer)
	}
}

// Heal makes the links whole again.
func (all Links) Heal(m CutMode) {
	for _, k := range all {
		if m == CutAndReset {
			k.reset()
		}
		k.block(false, false)
	}
}

func (all Links) Close() error {
	var errs []error
	for _, k := range all {
		errs = append(errs, k.close())
	}
	return errors.Join(errs...)
}

// CutMode says how a network is cut.
type CutMode string

const (
	CutBoth     CutMode = "both ways"
	CutToServer CutMode = "towards the servers"
	CutToClient CutMode = "from the servers"
	CutAndReset CutMode = "both ways, and the connections end"
)
