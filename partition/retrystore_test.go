package partition

import (
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/internal/record"
)

// TestReadSpace: whatever owners have written, an owner that reads the space of its slot decides as if it had read every claim.
// Owners come and go with layouts of 1, 2 and 4 slots per space, and each writes its claim as a retryQueue does.
func TestReadSpace(t *testing.T) {
	t.Parallel()
	cfg := Config{Name: "worker", Stream: "jobs", Subject: "jobs.*", Slots: 1, Retry: Retry{KeepFailing: true}}.resolve()
	lay, err := cfg.validate()
	if err != nil {
		t.Fatal(err)
	}
	nc := connect(t, natstest.Start(t, natstest.Options{}))
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := Open(nc, cfg.Name).Provision(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), retryStreamName(cfg.Stream))
	if err != nil {
		t.Fatal(err)
	}
	s := &retryStore{nc: nc, stream: stream, name: retryStreamName(cfg.Stream), lay: lay, room: newRoom()}

	if last, claims, err := s.readSpace(t.Context(), generation{1, 1}.place(0)); last != 0 || claims != nil || err != nil {
		t.Errorf("an empty space: last sequence %d, claims %v, %v", last, claims, err)
	}

	random := rand.New(rand.NewPCG(1, 1))
	short, lost := 0, 0
	for range 300 {
		slots := 1 << random.IntN(3)
		at := generation{1, slots}.place(random.IntN(slots))
		if random.IntN(5) == 0 { // something else is the space's last message
			if _, err := js.Publish(t.Context(), lay.retrySpace(0)+attemptsToken+"0.0.0.0.key", []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}

		last, claims, err := s.readSpace(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.claims(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if len(claims) < len(all) {
			short++
		}

		fence := Fence{Version: uint64(1 + random.IntN(40)), Claim: 1}
		decide := func(claims []record.QueueClaim) *retryQueue {
			q := newRetryQueue(cfg.Retry, at, fence)
			q.bump = false
			q.read(last, claims)
			return q
		}
		got, want := decide(claims), decide(all)
		if got.phase != want.phase || got.claimLost != want.claimLost {
			t.Fatalf("slot %d of %d with fence %s of claims %v: phase %d, want %d as with all of them, %v", at.slot, at.slots, fence, claims, got.phase, want.phase, all)
		}
		if got.lost() {
			lost++
			continue
		}
		if _, o, err := s.claim(t.Context(), at, fence, last); o != outcomeDone || err != nil {
			t.Fatalf("writing a claim: outcome %d, %v", o, err)
		}
	}
	if short == 0 || lost == 0 {
		t.Errorf("%d times not all claims were read, and %d times a later one was found: nothing is proven", short, lost)
	}
}
