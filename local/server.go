package local

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/muster-dev/muster/internal/listen"
)

// serve serves the console, and metrics beside it. Where they are is told when all that
// they show is started: see tellAddress.
func (c *Stack) serve(ctx context.Context) error {
	show, err := newScreen(c)
	if err != nil {
		return err
	}
	c.screen = show
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stopScreen = stop
	go show.Run(running)
	mux := http.NewServeMux()
	mux.Handle("/", show)
	mux.Handle("GET /metrics", c.metricsHandler())
	mux.HandleFunc("GET /health/live", func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(rw, `{"status":"live"}`) })
	at, err := listen.HTTP(ctx, c.o.HTTP, mux)
	if err != nil {
		return err
	}
	c.address = at
	return nil
}

// tellAddress tells where the console is, once it answers.
func (c *Stack) tellAddress(ctx context.Context) error {
	if c.address == "" {
		return nil
	}
	within := c.Patience(10 * time.Second)
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/health/live", nil)
	if err != nil {
		return fmt.Errorf("asking the console at %s whether it answers: %w", c.address, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the console at %s does not answer within %v: %w: give another address with --http", c.address, within, err)
	}
	_ = res.Body.Close()
	_, _ = fmt.Fprintf(c.o.Out, "Console: http://%s    metrics of both planes: http://%s/metrics\n", c.address, c.address)
	return nil
}
