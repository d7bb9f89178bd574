package partition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/report"
)

// This file lists the standbys. A standby has no stable ID, so no bucket names it:
// a worker or tool that wants the list asks all of them at once.

// standbyAnswers is how long answers of standbys are waited for: nobody knows
// how many there are.
const standbyAnswers = 250 * time.Millisecond

func standbySubject(group string) string { return "muster." + group + ".standbys" }

// standbyAnswer answers who asks for standbys, while this worker is one.
type standbyAnswer struct {
	cfg Config
	nc  *nats.Conn
	sub *nats.Subscription // nil: it does not answer
}

func (a *standbyAnswer) start() {
	self := mustJSON(report.Standby{Pod: a.cfg.Identity.Pod, Node: a.cfg.Identity.Node, Zone: a.cfg.Identity.Zone, Since: time.Now()})
	sub, err := a.nc.Subscribe(standbySubject(a.cfg.Name), func(msg *nats.Msg) { _ = msg.Respond(self) })
	if err != nil {
		a.cfg.Logger.Warn("This standby can't be asked for.", "err", err)
		return
	}
	a.sub = sub
}

func (a *standbyAnswer) stop() {
	if a.sub != nil {
		_ = a.sub.Unsubscribe()
		a.sub = nil
	}
}

// standbys asks for the workers of a group that wait for a stable ID, and
// returns those that answered within a quarter of a second, by pod.
func standbys(ctx context.Context, nc *nats.Conn, group string) ([]report.Standby, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("asking for the standbys of %s: %w", group, err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(standbySubject(group), inbox, nil); err != nil {
		return nil, fmt.Errorf("asking for the standbys of %s: %w", group, err)
	}
	ctx, cancel := context.WithTimeout(ctx, standbyAnswers)
	defer cancel()
	var all []report.Standby
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		switch {
		case errors.Is(err, nats.ErrNoResponders), errors.Is(err, context.DeadlineExceeded):
			slices.SortFunc(all, func(a, b report.Standby) int { return cmp.Compare(a.Pod, b.Pod) })
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("asking for the standbys of %s: %w", group, err)
		}
		var s report.Standby
		if json.Unmarshal(msg.Data, &s) == nil && s.Pod != "" {
			all = append(all, s)
		}
	}
}
