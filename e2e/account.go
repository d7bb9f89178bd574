package e2e

import (
	"context"
	"time"

	"github.com/muster-dev/muster/e2e/audit"
)

// account has an auditor account for all messages that were published so far, and tells
// the first faults that it found.
func (s *session) account(ctx context.Context, auditor *audit.Auditor) (audit.Account, error) {
	pubs := s.Traffic.published()
	if err := s.keepPublished(pubs); err != nil {
		return audit.Account{}, err
	}
	published := make([]audit.Published, len(pubs))
	for i, p := range pubs {
		published[i] = audit.Published{Sequence: p.Seq, Key: p.Key, Context: p.Ref.ID}
	}
	deaths := map[string]time.Time{}
	for file, ns := range s.rig.endings(s.Defenders.All()) {
		deaths[file] = time.Unix(0, ns)
	}
	a, err := auditor.Account(ctx, published, deaths, nil)
	if err != nil {
		return a, err
	}
	for _, f := range a.Faults {
		s.Say("The auditor: %s", f)
	}
	s.report.measure("account", a)
	return a, nil
}

// checkAccount checks what the auditor says of a run in which no message was bad.
func (s *session) checkAccount(a audit.Account) {
	r := s.report
	r.check("published", "at least one message a chamber", a.Messages >= s.o.Chambers, "%d, %d of them not confirmed to the publisher", a.Messages, a.Unconfirmed)
	equal(r, "lost", 0, a.Lost)
	equal(r, "messages without evidence", 0, a.Unknown)
	equal(r, "messages still in the stream", 0, a.Left)
	equal(r, "applied twice, changed, or of nothing published", 0, a.StoredTwice+a.FromNowhere)
	equal(r, "concurrent", 0, a.Concurrent)
	equal(r, "out of order", 0, a.OutOfOrder)
	equal(r, "results stored out of order, or under an older fence", 0, a.EffectsDisorder+a.FenceBack)
	equal(r, "dead letters", 0, a.DeadLetters)
}
