package chamberview

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
)

// ParseKey reads a chamber as tool001:chamber1, or as tool001.chamber1, which is how subjects and logs write it. The error matches
// [console.ErrUnknownTarget].
func ParseKey(text string) (defender.Chamber, error) {
	ch, err := defender.ParseChamber(text)
	if tool, name, ok := strings.Cut(text, "."); err != nil && ok {
		ch, err = defender.ParseChamber(tool + ":" + name)
	}
	if err != nil {
		return ch, fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	}
	return ch, nil
}
