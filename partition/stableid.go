package partition

import (
	"cmp"
	"strconv"
	"strings"
)

// isStableID reports whether an ID is one of a worker: a prefix of 1 to 31 lower-case
// letters, digits and hyphens that begins with no hyphen, a hyphen, and a number below
// a million. It can be a part of a subject. A map has one for each worker, so this is
// no regular expression.
func isStableID(id string) bool {
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

// compareIDs orders "defender-9" before "defender-10".
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(ordinal(a), ordinal(b)), cmp.Compare(a, b))
}

func ordinal(id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}
