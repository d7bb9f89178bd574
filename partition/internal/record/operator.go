package record

import (
	"errors"
	"fmt"
	"time"
)

// Override is an operator's override as it is stored.
type Override struct {
	Slot   int       `json:"slot"`
	Key    string    `json:"key,omitempty"`
	Worker string    `json:"worker"`
	At     time.Time `json:"at"`
}

// Overrides is what overridesKey holds.
type Overrides struct {
	Schema    int        `json:"schema"`
	Overrides []Override `json:"pins"`
}

// DecodeOverrides reads the overrides, and returns every fault that it finds.
func DecodeOverrides(data []byte) (Overrides, error) {
	var v Overrides
	if err := decode(data, maxOverridesBytes, &v); err != nil {
		return Overrides{}, fmt.Errorf("reading overrides: %w", err)
	}
	var errs []error
	for i, p := range v.Overrides {
		if p.Worker == "" || p.Slot < 0 || p.Slot >= MaxSlots {
			errs = append(errs, fmt.Errorf("reading overrides: overrides[%d] is no override: %+v", i, p))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Overrides{}, err
	}
	return v, nil
}

// Expected is what expectedKey holds.
type Expected struct {
	Schema int `json:"schema"`
	N      int `json:"n"`
}

// Wanted is what wantedKey holds.
type Wanted struct {
	Schema int `json:"schema"`
	Slots  int `json:"slots"`
}

// DecodeExpected reads the expected number of workers.
func DecodeExpected(data []byte) (Expected, error) {
	var v Expected
	if err := decode(data, MaxBytes, &v); err != nil {
		return Expected{}, err
	}
	if v.N < 0 || v.N > MaxExpected {
		return Expected{}, fmt.Errorf("n is %d, want 0 to %d", v.N, MaxExpected)
	}
	return v, nil
}

// DecodeWanted reads how many slots there should be.
func DecodeWanted(data []byte) (Wanted, error) {
	var v Wanted
	if err := decode(data, MaxBytes, &v); err != nil {
		return Wanted{}, err
	}
	if v.Slots < 0 || v.Slots > MaxSlots {
		return Wanted{}, fmt.Errorf("slots is %d, want 0 to %d", v.Slots, MaxSlots)
	}
	return v, nil
}

const (
	// maxOverridesBytes bounds what is read as overrides.
	maxOverridesBytes = 4 << 20
)

const (
	// MaxExpected bounds the expected number of workers: the largest pool.
	MaxExpected = 100_000
)
