package partition

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file cuts a state into chunks and checks them at the other end, without I/O to the servers.
// The new owner asks for each chunk by its number, a few ahead of what it has read, so the old one
// never sends more than that: the requests are the flow control.

const (
	// stateChunk is how many bytes one message has, unless half of what the servers allow is less.
	stateChunk = 64 << 10
	// stateWindow is how many chunks are asked for and not read.
	stateWindow = 4
)

// stateSource cuts what a reader gives into chunks.
type stateSource struct {
	from   io.Reader
	chunk  int   // bytes
	most   int64 // bytes of the whole
	length int64
	sum    hash.Hash
}

func newStateSource(from io.Reader, chunk int, most int64) *stateSource {
	return &stateSource{from: from, chunk: chunk, most: most, sum: sha256.New()}
}

// next returns the next chunk, and what the receiver is told of it beside its number. Only the last
// one may be shorter than the others.
func (s *stateSource) next() ([]byte, record.StateChunk, error) {
	data := make([]byte, s.chunk)
	n, err := io.ReadFull(s.from, data)
	data = data[:n]
	ends := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if err != nil && !ends {
		return nil, record.StateChunk{}, fmt.Errorf("reading the state from byte %d: %w", s.length+int64(n), err)
	}
	if s.length += int64(n); s.length > s.most {
		return nil, record.StateChunk{}, stateTooLarge(s.most)
	}
	s.sum.Write(data)
	if !ends {
		return data, record.StateChunk{Outcome: record.StateMore}, nil
	}
	return data, record.StateChunk{Outcome: record.StateLast, Length: s.length, Sum: hex.EncodeToString(s.sum.Sum(nil))}, nil
}

func stateTooLarge(most int64) error {
	return fmt.Errorf("the state has more than %d bytes: raise Config.State.MaxBytes of both workers, or export less", most)
}

// stateSink checks the chunks of one transfer.
type stateSink struct {
	transfer string
	most     int64 // bytes of the whole
	next     int   // chunk
	length   int64
	sum      hash.Hash
	whole    bool // the last chunk came, and length and checksum are right
}

func newStateSink(transfer string, most int64) *stateSink {
	return &stateSink{transfer: transfer, most: most, sum: sha256.New()}
}

// errNoState is of a worker that has no state for the handoff: its handler is no StateMover, it never
// had the whole state, or it has kept the state for long enough.
var errNoState = errors.New("it has no state for this handoff")

// take takes in the next chunk. After an error, or when the state is whole, nothing more is taken.
func (s *stateSink) take(c record.StateChunk, data []byte) error {
	switch {
	case s.whole:
		return errors.New("a chunk came after the last one")
	case c.Transfer != s.transfer:
		return fmt.Errorf("a chunk of transfer %s came, want %s", c.Transfer, s.transfer)
	case c.Outcome == record.StateNone:
		return errNoState
	case c.Outcome == record.StateFailed:
		return fmt.Errorf("the old owner can't export it: %s", c.Reason)
	case c.Chunk != s.next:
		return fmt.Errorf("chunk %d came, want %d", c.Chunk, s.next)
	}
	s.next++
	if s.length += int64(len(data)); s.length > s.most {
		return stateTooLarge(s.most)
	}
	s.sum.Write(data)
	if c.Outcome == record.StateMore {
		return nil
	}

	if sum := hex.EncodeToString(s.sum.Sum(nil)); c.Length != s.length || c.Sum != sum {
		return fmt.Errorf("%d bytes with checksum %.8s came, the old owner sent %d with %.8s", s.length, sum, c.Length, c.Sum)
	}
	s.whole = true
	return nil
}
