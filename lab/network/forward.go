package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Forward passes connections from an address of a Network on to one outside, as a load
// balancer between them does. It is made by Network.Forward.
type Forward struct {
	listener net.Listener
	target   string
	stop     context.CancelFunc
	running  sync.WaitGroup
}

// Forward passes TCP connections to an address of the network on to one outside.
func (n *Network) Forward(ctx context.Context, address, target string) (*Forward, error) {
	l, err := n.Listen(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("listening on the machines' network: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Forward{listener: l, target: target, stop: cancel}
	f.running.Go(func() { f.accept(ctx) })
	return f, nil
}

// accept passes connections on until the listener is closed.
func (f *Forward) accept(ctx context.Context) {
	for {
		c, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.running.Go(func() { f.pass(ctx, c) })
	}
}

// pass copies both ways until either side has ended, or the forward is closed. One side
// that can't be reached closes the other, as a reset does.
func (f *Forward) pass(ctx context.Context, inside net.Conn) {
	defer func() { _ = inside.Close() }()
	outside, err := new(net.Dialer).DialContext(ctx, "tcp", f.target)
	if err != nil {
		return
	}
	defer func() { _ = outside.Close() }()

	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{inside, outside}, {outside, inside}} {
		f.running.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		})
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Close ends the forward and its connections.
func (f *Forward) Close() error {
	f.stop()
	err := f.listener.Close()
	f.running.Wait()
	return err
}
