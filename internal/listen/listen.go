// Package listen serves HTTP for as long as a context lasts.
package listen

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// HTTP serves a handler on a TCP address, host:port, until ctx ends, and returns the
// address that it listens on, which differs if the port was 0.
func HTTP(ctx context.Context, address string, h http.Handler) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("serving HTTP on %s: %w: give another address with --http", address, err)
	}

	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.Serve(l) }()
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return l.Addr().String(), nil
}
