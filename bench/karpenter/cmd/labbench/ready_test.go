package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestAwaitReady(t *testing.T) {
	runs := func() error { return nil }
	t.Run("until it answers so", func(t *testing.T) {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked++; asked < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer server.Close()
		if err := awaitReady(t.Context(), server.URL, runs); err != nil || asked != 3 {
			t.Errorf("%v after %d questions", err, asked)
		}
	})
	t.Run("not once it has ended", func(t *testing.T) {
		ended := errors.New("it has ended")
		if err := awaitReady(t.Context(), "http://127.0.0.1:1/readyz", func() error { return ended }); !errors.Is(err, ended) {
			t.Error(err)
		}
	})
	t.Run("not without a limit", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		if err := awaitReady(ctx, "http://127.0.0.1:1/readyz", runs); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

func TestReportSaysWhenTheTraceStarts(t *testing.T) {
	text := scene{}.report([]result{{Name: "Muster"}})
	if !strings.Contains(text, "- **Start**: the trace begins when the autoscaler is ready") {
		t.Error(text)
	}
}
