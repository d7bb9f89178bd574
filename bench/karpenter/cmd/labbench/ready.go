package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// startLimit is how long an autoscaler may take from its start until it is ready.
const startLimit = 2 * time.Minute

// freePort returns a port of this machine that nothing listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

// awaitReady asks until the autoscaler answers that it is ready, so that no time of the trace passes while it starts. failed
// says that it has ended by itself.
func awaitReady(ctx context.Context, url string, failed func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var last error
	for {
		if last = ready(ctx, url); last == nil {
			return nil
		}
		if err := failed(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until the autoscaler is ready: %w: see its log in the run's directory", errors.Join(ctx.Err(), last))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ready asks once.
func ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, res.Status)
	}
	return nil
}
