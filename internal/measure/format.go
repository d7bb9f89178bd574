package main

import "fmt"

// named is a number with the name of what has it.
func named(n int, name string) string {
	if name == "" {
		return "–"
	}
	return fmt.Sprintf("%s, `%s`", thousands(n), name)
}

func partOf(n, all int) string {
	return fmt.Sprintf("%s (%.0f %%)", thousands(n), 100*ratio(n, all))
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// thousands writes a number with a comma before each three digits.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
