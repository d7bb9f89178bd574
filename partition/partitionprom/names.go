package partitionprom

import "strings"

// plural returns a user's word for use in a metric's name: as it is if it is in the
// plural already.
func plural(word string) string {
	stem, y := strings.CutSuffix(word, "y")
	switch {
	case y && stem != "" && !strings.ContainsAny(stem[len(stem)-1:], "aeiou"):
		return stem + "ies"
	case strings.HasSuffix(word, "ss") || strings.HasSuffix(word, "x") || strings.HasSuffix(word, "ch") || strings.HasSuffix(word, "sh"):
		return word + "es"
	case strings.HasSuffix(word, "s"):
		return word
	}
	return word + "s"
}

// singular is the opposite of plural, for the words that end in a plain s.
func singular(word string) string {
	if strings.HasSuffix(word, "ss") || strings.HasSuffix(word, "us") || strings.HasSuffix(word, "is") {
		return word
	}
	return strings.TrimSuffix(word, "s")
}
