package record

import (
	"errors"
	"fmt"
	"time"
)

// CallRequest is what a caller says of a call beside its data: for whom it takes the worker. It
// travels as the header CallHeader.
type CallRequest struct {
	Schema int    `json:"schema"`
	Key    string `json:"key"`
	Layout int    `json:"layout"` // generation of the slot count
	Slots  int    `json:"slots"`  // of that generation
	Slot   int    `json:"slot"`
	// Fence is that of the slot's owner by the caller's map; zero: the caller doesn't know it.
	Fence Fence `json:"fence"`
	// Wait is for how many milliseconds the request may wait until the worker holds the slot.
	Wait int64 `json:"wait,omitempty"`
	// Timeout is after how many milliseconds the caller stops waiting for the answer.
	Timeout int64 `json:"timeout"`
}

// CallHeader is the header with the CallRequest of a call, and CallOutcomeHeader the one with the
// CallOutcome of its answer. The answer's data is the handler's, or the text of an error.
const (
	CallHeader        = "Muster-Call"
	CallOutcomeHeader = "Muster-Call-Outcome"
)

// CallOutcome is what became of a call.
type CallOutcome string

const (
	CallServed  CallOutcome = "served"   // the data is the handler's answer
	CallFailed  CallOutcome = "failed"   // the handler was called and returned an error
	CallMoved   CallOutcome = "moved"    // not served: the worker does not have the slot any more
	CallNotYet  CallOutcome = "not-yet"  // not served: the worker did not have the slot in time
	CallNoLease CallOutcome = "no-lease" // not served: the worker's lease may have ended
	CallBusy    CallOutcome = "busy"     // not served: the worker has too many requests
	CallInvalid CallOutcome = "invalid"  // not served: the request is malformed
)

// MaxCallTimeout bounds CallRequest.Timeout and Wait.
const MaxCallTimeout = 24 * time.Hour

// DecodeCall reads the header of a call.
func DecodeCall(header string) (CallRequest, error) {
	var v CallRequest
	if err := decode([]byte(header), MaxBytes, &v); err != nil {
		return CallRequest{}, err
	}

	var errs []error
	if v.Key == "" {
		errs = append(errs, errors.New("it names no key"))
	}
	if v.Layout < 1 {
		errs = append(errs, fmt.Errorf("layout is %d, want 1 or more", v.Layout))
	}
	if v.Slots < 1 || v.Slots > MaxSlots || v.Slot < 0 || v.Slot >= v.Slots {
		errs = append(errs, fmt.Errorf("there is no slot %d of %d", v.Slot, v.Slots))
	}
	most := MaxCallTimeout.Milliseconds()
	if v.Timeout < 1 || v.Timeout > most {
		errs = append(errs, fmt.Errorf("timeout is %d ms, want 1 to %d", v.Timeout, most))
	}
	if v.Wait < 0 || v.Wait > most {
		errs = append(errs, fmt.Errorf("wait is %d ms, want 0 to %d", v.Wait, most))
	}
	if err := errors.Join(errs...); err != nil {
		return CallRequest{}, err
	}
	return v, nil
}
