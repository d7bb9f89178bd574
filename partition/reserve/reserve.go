// Package reserve creates streams with a part of the servers' storage that is theirs.
//
// A server, and an account with a limit, counts what its streams may hold at most
// (MaxBytes) as reserved, and refuses to create a stream whose MaxBytes is more than
// what is left. It does not reserve anything for a stream without MaxBytes, and it
// refuses every write, to any stream, once all of them together hold more than its
// limit. So writes to a stream with MaxBytes are only sure to succeed where each
// stream has a MaxBytes.
package reserve

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// Error codes of the server.
const (
	codeNoPeers          jetstream.ErrorCode = 10005 // of a cluster; for any reason
	codeAccountExceeded  jetstream.ErrorCode = 10002
	codeInsufficient     jetstream.ErrorCode = 10023
	codeStorageExceeded  jetstream.ErrorCode = 10047
	codeStreamStoreFails jetstream.ErrorCode = 10077
)

// NoRoom reports whether a stream was not created, or not changed, because the servers
// have less storage left than it would reserve.
func NoRoom(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	return api.ErrorCode == codeStorageExceeded || api.ErrorCode == codeInsufficient ||
		api.ErrorCode == codeNoPeers && strings.Contains(api.Description, "insufficient storage")
}

// Full reports whether a message was not stored because the stream, the account or the
// server holds as much as it may.
func Full(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && FullCode(api.ErrorCode)
}

// FullCode is Full for the error code of an answer.
func FullCode(code jetstream.ErrorCode) bool {
	switch code {
	case codeAccountExceeded, codeInsufficient, codeStorageExceeded, codeStreamStoreFails:
		return true
	}
	return false
}

// ErrNoRoom is wrapped by errors of Stream and Limit.
var ErrNoRoom = errors.New("the servers have too little storage that no stream has reserved: raise max_file_store or the account's limit, or lower the max bytes of other streams")

// begun is the limit of a stream whose limit is still to be found: nobody would choose
// it. A process that dies in between leaves it for the next one.
const begun = Least + 1

// Unlimited reports whether a stream has no limit that somebody has chosen.
func Unlimited(c jetstream.StreamConfig) bool { return c.MaxBytes <= 0 || c.MaxBytes == begun }

// Stream creates a stream with a limit that leaves others at least as much as it takes:
// half of what the servers have not reserved yet, or less, and at most most. With parts
// it is the first of several streams of that size, and the limit leaves room for the
// others. The error is jetstream.ErrStreamNameAlreadyInUse if the stream exists.
func Stream(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, most int64, parts int) (s jetstream.Stream, err error) {
	// Of several processes that start together, all but the first find it here.
	switch s, err := js.Stream(ctx, want.Name); {
	case err == nil && s.CachedInfo().Config.MaxBytes != begun:
		return nil, jetstream.ErrStreamNameAlreadyInUse
	case err != nil && !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, err
	}
	want.MaxBytes = begun
	err = exclusively(ctx, js, want.Replicas, func() error {
		created, err := js.CreateStream(ctx, want) // also one that another process left without its limit
		switch {
		case NoRoom(err):
			return noRoom(want.MaxBytes, want.Name, err)
		case err != nil:
			return err
		}
		s, err = limit(ctx, js, created.CachedInfo().Config, most, parts)
		return err
	})
	return s, err
}

// Limit gives a stream that exists a limit as Stream would, unless somebody else has
// given it one meanwhile.
func Limit(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig, most int64, parts int) (s jetstream.Stream, err error) {
	err = exclusively(ctx, js, c.Replicas, func() error {
		if s, err = js.Stream(ctx, c.Name); err != nil || !Unlimited(s.CachedInfo().Config) {
			return err
		}
		s, err = limit(ctx, js, c, most, parts)
		return err
	})
	return s, err
}

// Of returns the limit of a stream, once no process seeks one for it.
func Of(ctx context.Context, js jetstream.JetStream, stream string) (bytes int64, err error) {
	err = exclusively(ctx, js, 0, func() error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		bytes = s.CachedInfo().Config.MaxBytes
		return nil
	})
	return bytes, err
}

// limit seeks the largest limit that Stream may give. The servers don't tell clients how
// much they have. So it asks for twice what is needed, and for half of that as long as
// it is refused, and returns the surplus at once. A stream is not created with that
// much, since the servers of a cluster compare a new stream with what they last heard of
// each other, and a larger limit with what is reserved; together they would reserve more
// than there is.
func limit(ctx context.Context, js jetstream.JetStream, c jetstream.StreamConfig, most int64, parts int) (jetstream.Stream, error) {
	parts = max(parts, 1)
	asked := 2 * int64(parts)
	var refused error
	for limit := most / int64(parts); limit >= Least; limit /= 2 {
		c.MaxBytes = asked * limit
		s, err := js.UpdateStream(ctx, c)
		switch {
		case NoRoom(err):
			refused = err
			continue
		case err != nil:
			return nil, err
		}
		reduced := s.CachedInfo().Config
		reduced.MaxBytes = limit
		if s, err = js.UpdateStream(ctx, reduced); NoRoom(err) {
			return nil, noRoom(limit, c.Name, err) // another account's processes don't wait for their turn
		}
		return s, err
	}
	return nil, noRoom(asked*Least, c.Name, refused)
}

func noRoom(bytes int64, stream string, err error) error {
	return fmt.Errorf("reserving %d bytes for stream %s: %w: %w", bytes, stream, ErrNoRoom, err)
}
