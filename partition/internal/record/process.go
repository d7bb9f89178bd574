package record

import (
	"fmt"
	"strings"
)

// Process is one incarnation of a worker: its stable ID, and the revision of its
// claim on it, which differs from one holder of the name to the next.
type Process struct {
	ID    string `json:"id"`
	Claim uint64 `json:"claim"`
}

func (m Process) String() string { return fmt.Sprintf("%s/%d", m.ID, m.Claim) }

func checkProcess(what string, m Process) error {
	if !m.valid() {
		return fmt.Errorf("%s %q with claim %d is no worker", what, m.ID, m.Claim)
	}
	return nil
}

// valid reports whether it is a worker.
func (m Process) valid() bool { return IsStableID(m.ID) && m.Claim != 0 }

// IsStableID reports whether an ID is one of a worker: a prefix of 1 to 31 lower-case
// letters, digits and hyphens that begins with no hyphen, a hyphen, and a number below
// a million. It can be a part of a subject. A map has one for each worker, so this is
// no regular expression.
func IsStableID(id string) bool {
	at := strings.LastIndexByte(id, '-')
	if at < 1 || at > 31 || id[0] == '-' {
		return false
	}
	number := id[at+1:]
	if len(number) < 1 || len(number) > 6 || number[0] == '0' && len(number) > 1 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case '0' <= c && c <= '9':
		case i < at && ('a' <= c && c <= 'z' || c == '-'):
		case i == at:
		default:
			return false
		}
	}
	return true
}
