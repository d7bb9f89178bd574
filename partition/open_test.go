package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

// TestWhatMayPassIsToldFromWhatWillNot: a worker waits for servers that elect a
// leader, and not for a fault that a person has to fix.
func TestWhatMayPassIsToldFromWhatWillNot(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		&jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"}: true,
		context.DeadlineExceeded:                         true,
		nats.ErrNoResponders:                             true,
		jetstream.ErrBucketNotFound:                      false,
		jetstream.ErrJetStreamNotEnabled:                 false,
		jetstream.ErrJetStreamNotEnabledForAccount:       false,
		errors.New("the stream has 3 shards, not 2"):     false,
		&jetstream.APIError{Code: 403, ErrorCode: 1}:     false,
		nats.ErrConnectionClosed:                         false,
		&jetstream.APIError{Code: 404, ErrorCode: 10059}: false,
	} {
		if got := passing(fmt.Errorf("reading: %w", err)); got != want {
			t.Errorf("%v passes: %t, want %t", err, got, want)
		}
	}
}

// logBuffer is a log that a test reads while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestAWorkerTriesToBeginUntilItIsStopped: nobody answers, and each try is told.
func TestAWorkerTriesToBeginUntilItIsStopped(t *testing.T) {
	t.Parallel()
	nc := connect(t, natstest.Start(t, natstest.Options{NoJetStream: true}))
	var log logBuffer
	w, err := New(nc, Config{Name: "g", Stream: "S", Subject: "s.*", Logger: slog.New(slog.NewTextHandler(&log, nil))}, HandlerFunc(func(context.Context, Message) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*retryInterval)
	defer cancel()
	if err := w.Run(ctx); err == nil || !strings.Contains(err.Error(), "starting worker of g") {
		t.Errorf("it ends with %v", err)
	}
	if n := strings.Count(log.String(), "The servers are not ready"); n < 2 {
		t.Errorf("it told of %d tries:\n%s", n, log.String())
	}
}
