package partition

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openPatience is how long a worker tries to begin while servers don't answer, or
// elect leaders among themselves. What starts while one of them is gone would end at
// once otherwise.
const openPatience = 30 * time.Second

// opening is how a worker finds its group, or provisions it, before its loop begins.
type opening struct {
	cfg    Config
	layout layout
	nc     *nats.Conn
	post   func(input)
}

// openGroup is a group that a worker can work with.
type openGroup struct {
	cfg     Config // with the slot count that the group was provisioned with
	layout  layout
	js      jetstream.JetStream
	buckets *buckets
	retry   jetstream.Stream // nil without a retry queue
}

// run tries until the group is open. It gives up after openPatience, and at once if an
// error won't pass.
func (o opening) run(ctx context.Context) (*openGroup, error) {
	for end := time.Now().Add(openPatience); ; {
		g, err := o.try(ctx)
		if err == nil {
			return g, nil
		}
		if !passing(err) || ctx.Err() != nil || time.Now().After(end) {
			return nil, err
		}
		o.cfg.Logger.Warn("The servers are not ready; again.", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// passing reports whether an error may be over in a moment: no server answered, or
// JetStream has no leader at the moment (status 503).
func passing(err error) bool {
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return false
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == http.StatusServiceUnavailable ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting)
}

func (o opening) try(ctx context.Context) (*openGroup, error) {
	js, err := jetstream.New(o.nc, jetstream.WithDefaultTimeout(apiTimeout))
	if err != nil {
		return nil, err
	}

	kv, base, err := o.provisioned(ctx, js)
	if err != nil {
		return nil, err
	}
	g := &openGroup{cfg: o.cfg, layout: o.layout, js: js}
	g.cfg.Slots, g.layout.base = base, base

	// Without the stream of events the worker works all the same: keys are worth more
	// than a record of what happens to them.
	if err := provisionEvents(ctx, js, g.cfg); err != nil {
		g.cfg.Logger.Warn("The stream of events can't be made; they are told and not kept.", "stream", eventStreamName(g.cfg.Name), "err", err)
	}
	if err := caughtUp(ctx, func() error { return agree(ctx, js, kv, g.cfg, g.layout, false) }); err != nil {
		return nil, err
	}

	if g.buckets, err = openBuckets(ctx, js, g.cfg); err != nil {
		return nil, err
	}
	if !g.cfg.Retry.Disabled {
		if g.retry, err = provisionRetry(ctx, js, g.cfg, g.layout); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// provisioned returns the bucket of the map and the group's slot count. It provisions a
// group that does not exist, and creates again what an existing one has lost.
func (o opening) provisioned(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, int, error) {
	kv, err := js.KeyValue(ctx, o.cfg.bucketMap())
	base := o.cfg.Slots
	if err == nil {
		base, err = checkLayout(ctx, kv, o.cfg)
	}

	var again []string
	switch {
	case errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, errNotProvisioned):
		if again, err = provision(ctx, o.nc, o.cfg); err == nil {
			kv, err = js.KeyValue(ctx, o.cfg.bucketMap())
		}
		if err == nil { // Another worker may have provisioned first, with another number of slots.
			err = caughtUp(ctx, func() (err error) {
				base, err = checkLayout(ctx, kv, o.cfg)
				return err
			})
		}
	case err == nil:
		again, err = complete(ctx, js, o.cfg, o.layout, base)
	}
	reportRecreated(o.cfg.Logger, o.post, again)
	return kv, base, err
}
