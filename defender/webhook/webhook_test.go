package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/webhook"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

type request struct{ id, signature, body string }

func TestAlarmsArePostedSignedUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	if err := defender.Provision(t.Context(), nc, defender.Partition(16)); err != nil {
		t.Fatal(err)
	}
	requests := make(chan request, 20)
	failures := 2
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if failures > 0 {
			failures--
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
		requests <- request{r.Header.Get("Muster-Id"), r.Header.Get("Muster-Signature"), string(body)}
	}))
	t.Cleanup(hook.Close)
	set, err := strategy.Parse(fmt.Appendf(nil, "schema: 1\nversion: 1\nstrategies: [{name: a, alarm: {webhooks: [h]}}]\nwebhooks: [{name: h, url: %q, secret_env: KEY}]\n", hook.URL), "x")
	if err != nil {
		t.Fatal(err)
	}
	p := webhook.New(webhook.Config{Conn: nc, Strategies: func() *strategy.Set { return set }, Backoff: time.Millisecond,
		Secret: func(name string) string { return "secret of " + name }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()

	js := natstest.JetStream(t, nc)
	// The consumer takes what comes after it was made.
	for {
		if _, err := js.Consumer(t.Context(), defender.AlarmStream, webhook.Consumer); err == nil {
			break
		}
	}
	chamber := defender.Chamber{Tool: "etch1", Name: "a"}
	for i, event := range []defender.AlarmEvent{defender.AlarmOpened, defender.AlarmRepeated, defender.AlarmEscalated, defender.AlarmCleared} {
		id := fmt.Sprint("run", i)
		n := defender.AlarmNotice{Alarm: defender.Alarm{Context: defender.ContextRef{Chamber: chamber, ID: id}, State: 3, Reason: "x"}, Event: event, Opened: "run0", Count: 1}
		data, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), defender.AlarmSubject(chamber, id), data); err != nil {
			t.Fatal(err)
		}
	}
	taken := map[string]int{}
	for taken["etch1:a/run0-opened"]+taken["etch1:a/run2-escalated"]+taken["etch1:a/run3-cleared"] < 5 {
		select {
		case r := <-requests:
			taken[r.id]++
			if err := checkSignature("secret of KEY", r.signature, r.body); err != nil {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("requests were %v, want three notices, two tries more", taken)
		}
	}
	if len(taken) != 3 {
		t.Errorf("requests were %v, want none of the repeated alarm", taken)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

// checkSignature checks a signature as a receiver does: by the key, the time of
// sending, which must not be long ago, and the body.
func checkSignature(secret, signature, body string) error {
	var at int64
	var given string
	if _, err := fmt.Sscanf(signature, "t=%d,v1=%s", &at, &given); err != nil {
		return fmt.Errorf("signature %q: %w", signature, err)
	}
	if age := time.Since(time.Unix(at, 0)); age < -time.Minute || age > time.Minute {
		return fmt.Errorf("signature %q is %s old", signature, age)
	}
	h := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(h, "%d.%s", at, body)
	if want := hex.EncodeToString(h.Sum(nil)); given != want {
		return fmt.Errorf("signature %q, want %s", signature, want)
	}
	return nil
}

// TestPoster is about a stream of alarms that comes late or goes away.
func TestPoster(t *testing.T) {
	t.Parallel()
	t.Run("follows a stream that is made after it began, and one that is made again", func(t *testing.T) {
		t.Parallel()
		srv := natstest.Start(t)
		nc := natstest.Connect(t, srv.URL())
		js := natstest.JetStream(t, nc)
		posted := make(chan string, 20)
		hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { posted <- r.Header.Get("Muster-Id") }))
		t.Cleanup(hook.Close)
		set, err := strategy.Parse(fmt.Appendf(nil, "schema: 1\nversion: 1\nstrategies: [{name: a, alarm: {webhooks: [h]}}]\nwebhooks: [{name: h, url: %q}]\n", hook.URL), "x")
		if err != nil {
			t.Fatal(err)
		}
		p := webhook.New(webhook.Config{Conn: nc, Strategies: func() *strategy.Set { return set }, Backoff: 10 * time.Millisecond})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		chamber := defender.Chamber{Tool: "etch1", Name: "a"}
		alarm := func(id string) {
			n := defender.AlarmNotice{Alarm: defender.Alarm{Context: defender.ContextRef{Chamber: chamber, ID: id}, State: 3, Reason: "x"}, Event: defender.AlarmOpened, Opened: id, Count: 1}
			data, err := json.Marshal(n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(t.Context(), defender.AlarmSubject(chamber, id), data); err != nil {
				t.Fatal(err)
			}
		}
		consumer := func() {
			for {
				if _, err := js.Consumer(t.Context(), defender.AlarmStream, webhook.Consumer); err == nil {
					return
				}
				select {
				case err := <-done:
					t.Fatalf("it ended with %v", err)
				case <-time.After(time.Millisecond):
				}
			}
		}
		// A stream that is made in one step: the poster's consumer comes at once, and nats-server 2.15.2 has a data race between a new consumer
		// and a change of its stream's limit.
		makeStream := func() {
			c := jetstream.StreamConfig{Name: defender.AlarmStream, Subjects: []string{"dc-alarm.>", "dc-alarm-ack.>"}, MaxBytes: 1 << 20}
			if _, err := js.CreateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(50 * time.Millisecond) // it has begun, and found no stream
		makeStream()
		consumer()
		alarm("first")
		if got := <-posted; got != "etch1:a/first-opened" {
			t.Errorf("posted %q", got)
		}
		if err := js.DeleteStream(t.Context(), defender.AlarmStream); err != nil {
			t.Fatal(err)
		}
		makeStream()
		alarm("second") // perhaps before the consumer is there again
		select {
		case got := <-posted:
			if got != "etch1:a/second-opened" {
				t.Errorf("posted %q", got)
			}
		case err := <-done:
			t.Fatalf("it ended with %v", err)
		case <-time.After(30 * time.Second):
			t.Fatal("the second alarm is not posted")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
