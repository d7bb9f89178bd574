// Package quantity writes numbers with their nouns.
package quantity

import "strconv"

// Of writes a number and its noun, in the plural unless the number is 1: "1 pod", "3 pods". The
// noun must form its plural with s.
func Of(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
