// Package webhook posts alarms to where people look: it follows the stream of
// alarm notices and posts those that open or clear an alarm, signed, until they are
// taken.
//
// All defenders share one durable consumer, so each notice is posted by one of
// them, and again by another if that one dies: at least once. A receiver tells
// repetitions by the header Muster-Id.
//
// A request carries Muster-Signature: t=UNIX,v1=HEX, the HMAC-SHA-256 of the
// time, a dot and the body, so that neither can be changed and an old request can't
// be sent again. [Verify] checks it.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
)

// Headers of a request.
const (
	headerSignature = "Muster-Signature"
	headerID        = "Muster-Id"
)

// Consumer is the name of the shared consumer.
const Consumer = defender.WebhookConsumer

// Config says what a Poster works with; all but Client and Secret are required.
type Config struct {
	Conn *nats.Conn
	// Strategies returns those that apply now: they say who is told.
	Strategies func() *strategy.Set
	// Secret returns the key of an environment variable; default os.Getenv by the
	// caller. Nil signs nothing.
	Secret func(name string) string
	Client *http.Client // default one with a time limit of 10 s
	Logger *slog.Logger
	// Backoff is the wait before the second try; it doubles with each up to a
	// hundredfold. Default 2 s.
	Backoff time.Duration
}

// Poster posts notices.
type Poster struct{ c Config }

// New returns a poster.
func New(c Config) *Poster {
	if c.Client == nil {
		c.Client = &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a signed body isn't for others
		}}
	}
	if c.Backoff == 0 {
		c.Backoff = 2 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Poster{c: c}
}

// Run posts notices until ctx ends, then returns nil. Notices from before the
// first run aren't posted. While there is no stream of alarms, Run waits for it; if
// the stream is deleted and made again, Run follows the new one.
func (p *Poster) Run(ctx context.Context) error {
	js, err := jetstream.New(p.c.Conn)
	if err != nil {
		return fmt.Errorf("following the alarms: %w", err)
	}
	c := jetstream.ConsumerConfig{
		Durable: Consumer, AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverNewPolicy,
		FilterSubject: "dc-alarm.>", AckWait: 2 * time.Minute, MaxAckPending: 64, Description: "alarm notices to post to webhooks",
	}
	for {
		err := p.follow(ctx, js, c)
		if ctx.Err() != nil || p.c.Conn.IsClosed() {
			return nil //nolint:nilerr // it was to end then
		}
		p.c.Logger.Warn("Following the alarms is disturbed.", "err", err)
		if c.DeliverPolicy == jetstream.DeliverNewPolicy && errors.Is(err, jetstream.ErrConsumerDeleted) {
			// The alarm that has a missing stream made again is in it before this
			// program knows of the stream, and is to be posted, too.
			lost := time.Now().Add(-clockSkew)
			c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &lost
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.c.Backoff):
		}
	}
}

// clockSkew is how far this machine's clock may be from the server's.
const clockSkew = 5 * time.Second

// follow posts what the consumer delivers until ctx ends or the consumer is gone. A
// consumer that another process made is used as it is.
func (p *Poster) follow(ctx context.Context, js jetstream.JetStream, c jetstream.ConsumerConfig) error {
	consumer, err := js.Consumer(ctx, defender.AlarmStream, Consumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if consumer, err = js.CreateConsumer(ctx, defender.AlarmStream, c); errors.Is(err, jetstream.ErrConsumerExists) {
			consumer, err = js.Consumer(ctx, defender.AlarmStream, Consumer)
		}
	}
	if err != nil {
		return fmt.Errorf("following the alarms: %w", err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(8))
	if err != nil {
		return fmt.Errorf("following the alarms: %w", err)
	}
	defer messages.Stop()
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	for {
		msg, err := messages.Next()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			p.handle(ctx, msg)
			continue
		case errors.Is(err, jetstream.ErrNoHeartbeat) && !p.gone(ctx, consumer):
			// The server is away or slow; the pull continues when it is back.
			p.c.Logger.Warn("Following the alarms is disturbed.", "err", err)
		default:
			return err
		}
	}
}

// gone reports whether the server says that a consumer or its stream doesn't exist.
func (p *Poster) gone(ctx context.Context, c jetstream.Consumer) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := c.Info(ctx)
	return errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
}

// handle posts one notice to all hooks of its strategy. When one of them fails all
// are posted again, which they tell by the ID.
func (p *Poster) handle(ctx context.Context, msg jetstream.Msg) {
	var n defender.AlarmNotice
	if err := json.Unmarshal(msg.Data(), &n); err != nil || n.Event == defender.AlarmRepeated {
		_ = msg.Ack()
		return
	}
	meta, err := msg.Metadata()
	if err != nil {
		_ = msg.Nak()
		return
	}
	set := p.c.Strategies()
	s, _ := set.Of(n.Context)
	id := fmt.Sprintf("%s-%s", n.Context.TChart(), n.Event)
	tried := int(meta.NumDelivered)
	again := false
	for _, hook := range set.File().Webhooks {
		if !named(s.Alarm.Webhooks, hook.Name) || tried > hook.MaxTries() {
			continue
		}
		err := p.post(ctx, hook, id, msg.Data())
		switch {
		case err == nil:
		case ctx.Err() != nil:
			_ = msg.Nak()
			return
		case tried == hook.MaxTries():
			p.c.Logger.Error("An alarm could not be posted and is given up.", "webhook", hook.Name, "alarm", id, "tries", tried, "err", err)
		default:
			again = true
			p.c.Logger.Warn("An alarm could not be posted yet.", "webhook", hook.Name, "alarm", id, "try", tried, "err", err)
		}
	}
	if again {
		_ = msg.NakWithDelay(p.c.Backoff << min(tried-1, 6))
		return
	}
	_ = msg.Ack()
}

func named(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func (p *Poster) post(ctx context.Context, hook strategy.Webhook, id string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "muster-defender")
	req.Header.Set(headerID, id)
	if hook.SecretEnv != "" {
		secret := ""
		if p.c.Secret != nil {
			secret = p.c.Secret(hook.SecretEnv)
		}
		if secret == "" {
			return fmt.Errorf("the environment variable %s, which is to hold the key for signing, is not set", hook.SecretEnv)
		}
		req.Header.Set(headerSignature, sign(secret, time.Now(), body))
	}
	res, err := p.c.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16))
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return fmt.Errorf("it answered %s", res.Status)
	}
	return nil
}

// sign returns the value of Muster-Signature for a body sent at a time.
func sign(secret string, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	h := hmac.New(sha256.New, []byte(secret))
	_, _ = h.Write([]byte(t + "."))
	_, _ = h.Write(body)
	return "t=" + t + ",v1=" + hex.EncodeToString(h.Sum(nil))
}
