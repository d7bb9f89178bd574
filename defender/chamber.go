package defender

import (
	"errors"
	"fmt"
	"strings"
)

// Limits of the names that make up keys, in bytes.
const (
	maxNameBytes    = 64  // tool and chamber names
	maxContextBytes = 128 // context IDs
	maxTextBytes    = 256 // recipe, product, lot, wafer
)

// Chamber identifies one process chamber of a tool. It is comparable and serves
// as a map key; the zero value is not a valid chamber.
type Chamber struct {
	Tool string // for example "tool001"
	Name string // for example "chamber1"
}

// ParseChamber reads the form written by [Chamber.String], "tool001:chamber1".
func ParseChamber(s string) (Chamber, error) {
	tool, name, found := strings.Cut(s, ":")
	if !found {
		return Chamber{}, fmt.Errorf("chamber %q has no colon: write it as tool:chamber", s)
	}
	c := Chamber{Tool: tool, Name: name}
	if err := c.Validate(); err != nil {
		return Chamber{}, fmt.Errorf("chamber %q: %w", s, err)
	}
	return c, nil
}

// String returns the chamber's key, "tool001:chamber1".
func (c Chamber) String() string { return c.Tool + ":" + c.Name }

// Validate reports every fault of c. Both names are 1 to [maxNameBytes] letters,
// digits, '-' and '_', so that they are also single tokens of a message subject.
func (c Chamber) Validate() error {
	return errors.Join(checkName("tool", c.Tool), checkName("chamber", c.Name))
}

// MarshalText implements [encoding.TextMarshaler] with the form of String.
func (c Chamber) MarshalText() ([]byte, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return []byte(c.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (c *Chamber) UnmarshalText(text []byte) error {
	parsed, err := ParseChamber(string(text))
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}

// ChamberInfo is a registered chamber with its share of work.
type ChamberInfo struct {
	Chamber Chamber `json:"chamber"`
	// Weight is the expected work of the chamber in points (samples x SVIDs) a
	// context, at least 1. It only has to be right in proportion.
	Weight int64 `json:"weight"`
}

// TChartKey names the T-chart of one context.
type TChartKey struct {
	Chamber Chamber
	Context string
}

// ParseTChartKey reads the form written by [TChartKey.String].
func ParseTChartKey(s string) (TChartKey, error) {
	chamber, context, found := strings.Cut(s, "/")
	if !found {
		return TChartKey{}, fmt.Errorf("key %q of a T-chart has no slash: write it as tool:chamber/context", s)
	}
	c, err := ParseChamber(chamber)
	if err == nil {
		err = checkContext(context)
	}
	if err != nil {
		return TChartKey{}, fmt.Errorf("key %q of a T-chart: %w", s, err)
	}
	return TChartKey{Chamber: c, Context: context}, nil
}

// String returns "tool001:chamber1/context".
func (k TChartKey) String() string { return k.Chamber.String() + "/" + k.Context }

// Validate reports every fault of k.
func (k TChartKey) Validate() error {
	return errors.Join(k.Chamber.Validate(), checkContext(k.Context))
}

func checkName(what, s string) error {
	return checkToken(what, s, maxNameBytes, "-_")
}

func checkContext(s string) error {
	return checkToken("context", s, maxContextBytes, "-_.:+=@")
}

func checkToken(what, s string, limit int, punctuation string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case len(s) > limit:
		return fmt.Errorf("%s has %d bytes, at most %d are allowed", what, len(s), limit)
	}
	for _, r := range s {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(punctuation, r) {
			continue
		}
		return fmt.Errorf("%s %q contains %q: only letters, digits and %s are allowed", what, s, r, punctuation)
	}
	return nil
}
