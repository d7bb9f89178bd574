package partition

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/internal/record"
)

// peerLink exchanges messages with other workers, with the server that tells which of them
// are gone, and with operators that ask this worker to drain. execute and close are
// called by the worker's loop only; what arrives is posted by the client's goroutines.
type peerLink struct {
	cfg      Config
	nc       *nats.Conn
	log      *slog.Logger
	post     func(input)
	rejected rejections
	called   nats.MsgHandler // of calls of keys; nil: the handler answers none

	subs     []*nats.Subscription // of this worker's own subjects, while it has an identity
	probeSub *nats.Subscription
	probeBox string // answers to probes go here
}

func newPeerLink(cfg Config, nc *nats.Conn, post func(input)) (*peerLink, error) {
	l := &peerLink{cfg: cfg, nc: nc, log: cfg.Logger, post: post, rejected: rejections{cfg.Logger, post}, probeBox: nc.NewInbox()}
	var err error
	if l.probeSub, err = nc.Subscribe(l.probeBox+".*.*", l.probeAnswered); err != nil {
		return nil, err
	}
	return l, nil
}

// execute carries one effect out, for the worker with this identity.
func (l *peerLink) execute(self record.Process, e effect) {
	switch e := e.(type) {
	case sendEffect:
		_ = l.nc.Publish(peerSubject(l.cfg.Name, e.to), record.Encode(e.msg))
	case reportFenceEffect:
		_ = l.nc.Publish(fenceSubject(l.cfg.Name, e.report.To), record.Encode(e.report))
	case answerEffect:
		_ = l.nc.Publish(e.to, record.Encode(record.DrainReply{Schema: record.Schema, ID: self.ID, Slots: e.slots}))
	case pingEffect:
		go l.ping(e.start)
	case probeEffect:
		l.probe(e.to)
	case listenEffect:
		l.listen(e.self)
	}
}

func (l *peerLink) close() {
	_ = l.probeSub.Unsubscribe()
	l.listen(record.Process{})
}

// listen subscribes to the subjects of an identity, in place of those before; the zero
// record.Process has none.
func (l *peerLink) listen(self record.Process) {
	for _, s := range l.subs {
		_ = s.Unsubscribe()
	}
	l.subs = nil
	if self == (record.Process{}) {
		return
	}

	subscribe := func(subject string, handle nats.MsgHandler) error {
		s, err := l.nc.Subscribe(subject, handle)
		if err == nil {
			l.subs = append(l.subs, s)
		}
		return err
	}
	if err := subscribe(peerSubject(l.cfg.Name, self), l.peerCalled); err != nil {
		l.log.Error("Subscribing for messages of other workers failed.", "err", err)
		return
	}
	if err := subscribe(fenceSubject(l.cfg.Name, self), l.fenceReported); err != nil {
		l.log.Error("Subscribing for reports of rejected fences failed.", "err", err)
	}
	if l.called != nil {
		if err := subscribe(callSubject(l.cfg.Name, self), l.called); err != nil {
			l.log.Error("Subscribing for calls failed.", "err", err)
		}
	}
	if err := subscribe(drainSubject(l.cfg.Name, self), l.drainCalled); err != nil {
		l.log.Error("Subscribing for requests to drain failed.", "err", err)
	}
}

func (l *peerLink) peerCalled(msg *nats.Msg) {
	if len(msg.Data) == 0 {
		return // a probe: being subscribed is the answer
	}
	pm, err := record.DecodeMessage(msg.Data, record.MaxSlots)
	if err != nil {
		l.rejected.report(recordPeer, msg.Subject, err)
		return
	}
	l.post(peerInput{pm})
}

func (l *peerLink) fenceReported(msg *nats.Msg) {
	r, err := record.DecodeFenceReport(msg.Data)
	if err != nil {
		l.rejected.report(recordFence, msg.Subject, err)
		return
	}
	l.post(fenceReportInput{r})
}

// drainCalled takes in that an operator asks this worker to drain, or to stop draining.
func (l *peerLink) drainCalled(msg *nats.Msg) {
	r, err := record.DecodeDrain(msg.Data)
	if err != nil {
		l.rejected.report(recordDrain, msg.Subject, err)
		return
	}
	var until time.Time
	if r.Until > 0 {
		until = time.UnixMilli(r.Until)
	}
	l.post(drainInput{until, msg.Reply})
}

// ping finds out whether the server still answers. The answer of a server on its own confirms
// the lease.
func (l *peerLink) ping(start time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), l.cfg.Lease.SuspicionGrace)
	defer cancel()
	// A reconnect may lead to another kind of server: either one, before or after the
	// answer, makes it one that doesn't confirm the lease.
	clustered := l.clustered()
	if l.nc.FlushWithContext(ctx) == nil {
		l.post(pongInput{start: start, clustered: clustered || l.clustered()})
	}
}

// clustered reports whether the server of the connection is one of several: a member of a
// cluster or a leaf node. Only such a server names its cluster.
func (l *peerLink) clustered() bool { return l.nc.ConnectedClusterName() != "" }

// probe asks the server whether workers are subscribed to their subjects. The reply
// subject names the worker that the answer is about.
func (l *peerLink) probe(workers []record.Process) {
	for _, to := range workers {
		_ = l.nc.PublishRequest(peerSubject(l.cfg.Name, to), fmt.Sprintf("%s.%s.%d", l.probeBox, to.ID, to.Claim), nil)
	}
}

// probeAnswered: only the server answers a probe, and only when no worker is subscribed.
func (l *peerLink) probeAnswered(msg *nats.Msg) {
	if msg.Header.Get("Status") != "503" {
		return
	}
	id, claim, _ := strings.Cut(msg.Subject[len(l.probeBox)+1:], ".")
	m := record.Process{ID: id}
	if _, err := fmt.Sscanf(claim, "%d", &m.Claim); err != nil {
		return
	}
	l.post(unreachableInput{m})
}
