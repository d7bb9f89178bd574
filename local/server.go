package local

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/muster-dev/muster/internal/listen"
)

// serve serves the console, and metrics beside it, and returns where.
func serve(ctx context.Context, at string, console, metrics http.Handler) (address string, err error) {
	mux := http.NewServeMux()
	mux.Handle("/", console)
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /health/live", func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(rw, `{"status":"live"}`) })
	return listen.HTTP(ctx, at, mux)
}

// tellAddress tells where the console is, once it answers.
func tellAddress(ctx context.Context, out io.Writer, address string, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/health/live", nil)
	if err != nil {
		return fmt.Errorf("asking the console at %s whether it answers: %w", address, err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the console at %s does not answer within %v: %w: give another address with --http", address, within, err)
	}
	_ = res.Body.Close()
	_, _ = fmt.Fprintf(out, "Console: http://%s    metrics of both planes: http://%s/metrics\n", address, address)
	return nil
}
