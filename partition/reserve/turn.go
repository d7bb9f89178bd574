package reserve

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TurnStream is the stream by which all processes of an account take turns to find a
// limit. The server compares a limit with what is reserved in one step, and reserves it in
// another (nats-server 2.15.2, updateWithAdvisory). Two requests at the same moment make
// it count one limit twice, or grant more than there is. It then refuses to lower any
// limit until a stream is deleted.
//
// A turn is taken while the stream's last sequence is odd. A process takes a turn, and
// ends it, by publishing the next message on condition of the last sequence.
const TurnStream = "muster-reserving"

// A turn takes some milliseconds. One that lasts longer than turnStale belongs to a
// process that failed, and the next process ends it. It goes by the servers' clock: a process
// may have less time than turnStale, so it can't watch a turn for that long. A process that has waited for
// turnPatience continues without a turn: a limit that is counted twice is better than no
// stream.
const (
	turnStale    = 5 * time.Second
	turnPatience = 30 * time.Second
	turnPause    = 20 * time.Millisecond
)

// exclusively takes this process's turn, calls f, and ends the turn. If no turn can be
// taken, it calls f without one. If the stream of turns is missing, it is created with
// this number of replicas.
func exclusively(ctx context.Context, js jetstream.JetStream, replicas int, f func() error) error {
	waiting, stop := context.WithTimeout(ctx, turnPatience)
	taken, err := takeTurn(waiting, js, replicas)
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		// The turn must not outlast f, whatever becomes of the caller's context.
		defer func() {
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), turnStale)
			defer stop()
			_ = next(ctx, js, taken) // the next process ends it otherwise
		}()
	}
	return f()
}

// takeTurn waits until it is this process's turn, and returns the sequence that says so.
func takeTurn(ctx context.Context, js jetstream.JetStream, replicas int) (uint64, error) {
	for {
		last, err := lastTurn(ctx, js, replicas)
		if err != nil {
			return 0, err
		}
		if last.free() || last.age > turnStale {
			err := next(ctx, js, last.sequence)
			if err == nil && last.free() {
				return last.sequence + 1, nil
			}
			if err != nil && !taken(err) {
				return 0, err
			}
			continue // another process was faster, or a turn without an owner is over
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(turnPause/2 + rand.N(turnPause)):
		}
	}
}

// next publishes the message after a sequence. It fails if there is one.
func next(ctx context.Context, js jetstream.JetStream, last uint64) error {
	_, err := js.Publish(ctx, TurnStream, nil, jetstream.WithExpectLastSequence(last))
	return err
}

// taken reports whether another process published the next message.
func taken(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// turn is what the last message of the stream of turns says.
type turn struct {
	sequence uint64
	age      time.Duration // by the servers' clock
}

// free reports whether no process has its turn.
func (t turn) free() bool { return t.sequence%2 == 0 }

// lastTurn reads the stream of turns, which it creates if it is missing.
func lastTurn(ctx context.Context, js jetstream.JetStream, replicas int) (turn, error) {
	s, err := js.Stream(ctx, TurnStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: TurnStream, Description: "By it processes take turns to reserve storage for streams.",
			Subjects: []string{TurnStream}, MaxMsgs: 1, MaxBytes: Least, Storage: jetstream.FileStorage, Replicas: replicas})
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // with other replicas
		s, err = js.Stream(ctx, TurnStream)
	}
	if err != nil {
		return turn{}, err
	}
	info := s.CachedInfo()
	return turn{info.State.LastSeq, info.TimeStamp.Sub(info.State.LastTime)}, nil
}

// Least is the smallest limit that a stream is given.
const Least = 1 << 20
