package record

import (
	"errors"
	"fmt"
)

// StateRequest asks the old owner of a slot for one chunk of the slot's state. It travels as the
// header StateHeader, and its answer is a StateChunk.
type StateRequest struct {
	Schema   int     `json:"schema"`
	Transfer string  `json:"transfer"` // the same in all requests for one state, and in no others
	From     Process `json:"from"`     // the new owner
	Layout   int     `json:"layout"`   // generation of the slot count
	Slots    int     `json:"slots"`    // of that generation
	Slot     int     `json:"slot"`
	Version  uint64  `json:"version"` // of the map that the move came with
	Chunk    int     `json:"chunk"`   // from 0, in order
}

// StateChunk says what a chunk of a state is. It travels as the header StateHeader with the chunk's
// bytes as data.
type StateChunk struct {
	Schema   int          `json:"schema"`
	Transfer string       `json:"transfer"`
	Chunk    int          `json:"chunk"`
	Outcome  StateOutcome `json:"outcome"`
	Length   int64        `json:"length,omitempty"` // last: of the whole state
	Sum      string       `json:"sum,omitempty"`    // last: the whole state's SHA-256, in hexadecimal
	Reason   string       `json:"reason,omitempty"` // failed: why
}

// StateHeader is the header with a StateRequest or a StateChunk.
const StateHeader = "Muster-State"

// StateOutcome is what became of a request for a chunk.
type StateOutcome string

const (
	StateMore   StateOutcome = "more"   // the data is the chunk, and more follow
	StateLast   StateOutcome = "last"   // the data is the last chunk, which may be empty
	StateNone   StateOutcome = "none"   // the worker has no state for this handoff
	StateFailed StateOutcome = "failed" // the state ends here, unfinished
)

// Bounds of what is read.
const (
	maxTransfer   = 64      // bytes of a name of a transfer
	maxStateChunk = 1 << 30 // number of a chunk
	sumLength     = 64      // of a SHA-256 in hexadecimal
)

// DecodeStateRequest reads the header of a request for a chunk.
func DecodeStateRequest(header string) (StateRequest, error) {
	var v StateRequest
	if err := decode([]byte(header), MaxBytes, &v); err != nil {
		return StateRequest{}, err
	}

	errs := []error{checkChunk(v.Transfer, v.Chunk), checkProcess("sender", v.From)}
	if v.Layout < 1 {
		errs = append(errs, fmt.Errorf("layout is %d, want 1 or more", v.Layout))
	}
	if v.Slots < 1 || v.Slots > MaxSlots || v.Slot < 0 || v.Slot >= v.Slots {
		errs = append(errs, fmt.Errorf("there is no slot %d of %d", v.Slot, v.Slots))
	}
	if v.Version == 0 {
		errs = append(errs, errors.New("it names no version"))
	}
	if err := errors.Join(errs...); err != nil {
		return StateRequest{}, err
	}
	return v, nil
}

// DecodeStateChunk reads the header of a chunk.
func DecodeStateChunk(header string) (StateChunk, error) {
	var v StateChunk
	if err := decode([]byte(header), MaxBytes, &v); err != nil {
		return StateChunk{}, err
	}

	errs := []error{checkChunk(v.Transfer, v.Chunk)}
	switch v.Outcome {
	case StateMore, StateNone, StateFailed:
	case StateLast:
		if v.Length < 0 || len(v.Sum) != sumLength {
			errs = append(errs, fmt.Errorf("length is %d and the sum has %d digits, want 0 or more and %d", v.Length, len(v.Sum), sumLength))
		}
	default:
		errs = append(errs, fmt.Errorf("the outcome %q is unknown", v.Outcome))
	}
	if err := errors.Join(errs...); err != nil {
		return StateChunk{}, err
	}
	return v, nil
}

func checkChunk(transfer string, chunk int) error {
	var errs []error
	if transfer == "" || len(transfer) > maxTransfer {
		errs = append(errs, fmt.Errorf("the transfer's name has %d bytes, want 1 to %d", len(transfer), maxTransfer))
	}
	if chunk < 0 || chunk > maxStateChunk {
		errs = append(errs, fmt.Errorf("chunk is %d, want 0 to %d", chunk, maxStateChunk))
	}
	return errors.Join(errs...)
}
