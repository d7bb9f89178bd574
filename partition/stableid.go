package partition

import (
	"cmp"
	"strconv"
	"strings"
)

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
