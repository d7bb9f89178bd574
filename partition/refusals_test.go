package partition

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestRefusals: a server's refusal counts from the first answer, not from the beginning of
// an outage before it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	full := &jetstream.APIError{Code: 503, ErrorCode: 10023, Description: "insufficient resources"}
	at := func(s int) time.Time { return simEpoch.Add(time.Duration(s) * time.Second) }
	var r refusals
	for _, step := range []struct {
		name           string
		op             op
		err            error
		now            int
		since, refused time.Time
	}{
		{"no answer", opUpdate, context.DeadlineExceeded, 1, at(1), time.Time{}},
		{"still none", opUpdate, context.DeadlineExceeded, 20, at(1), time.Time{}},
		{"refused", opUpdate, full, 21, at(1), at(21)},
		{"refused again", opCreate, full, 22, at(1), at(21)},
		{"a read says nothing of writes", opGet, nil, 23, at(1), at(21)},
		{"no answer again", opUpdate, context.DeadlineExceeded, 24, at(1), time.Time{}},
		{"a conflict is an answer of servers that work", opUpdate, errConflict, 25, time.Time{}, time.Time{}},
		{"refused later", opUpdate, errors.Join(full), 30, at(30), at(30)},
		{"written", opUpdate, nil, 31, time.Time{}, time.Time{}},
	} {
		r.note(kvInput{kvEffect: kvEffect{op: step.op}, err: step.err}, at(step.now))
		if !r.since.Equal(step.since) || !r.refused.Equal(step.refused) {
			t.Errorf("%s: since %v, refused since %v; want %v, %v", step.name, r.since, r.refused, step.since, step.refused)
		}
	}
}
