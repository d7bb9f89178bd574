package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/partition"
)

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want audit.CallOutcome
	}{
		{nil, audit.CallAnswered},
		{fmt.Errorf("calling: %w", partition.ErrNoOwner), audit.CallNoOwner},
		{fmt.Errorf("%w: %w", partition.ErrNoOwner, context.DeadlineExceeded), audit.CallNoOwner},
		{&partition.CallError{}, audit.CallRejected},
		{&partition.CallError{Served: true}, audit.CallUncertain},
		{context.DeadlineExceeded, audit.CallUncertain},
		{errors.New("the connection is closed"), audit.CallUncertain},
	} {
		if got := outcomeOf(c.err); got != c.want {
			t.Errorf("%v: outcome %d, want %d", c.err, got, c.want)
		}
	}
}

// TestARecordedCallIsAudited: what the recorder answers and writes is what the auditor reads.
func TestARecordedCallIsAudited(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r, err := newRecorder(filepath.Join(dir, "pod-0"))
	if err != nil {
		t.Fatal(err)
	}
	call := audit.Call{Number: 4, Key: "t:c", Slot: 5, Due: time.Now(), Outcome: audit.CallAnswered}
	data, err := json.Marshal(question{Number: call.Number})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := r.HandleCall(t.Context(), partition.Call{Key: call.Key, Slot: call.Slot, Data: data, Fence: partition.Fence{Version: 2, Claim: 9}})
	if err != nil {
		t.Fatal(err)
	}
	call.Ended = time.Now()
	if err := errors.Join(json.Unmarshal(answer, &call.By), r.Close()); err != nil {
		t.Fatal(err)
	}
	if call.By.Version != 2 || call.By.Claim != 9 {
		t.Errorf("answered by %+v", call.By)
	}
	a, err := audit.AccountCalls(dir, []audit.Call{call}, nil, nil)
	if err != nil || !a.Clean() || a.Answered != 1 || a.Served != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}
