package main

import (
	"fmt"
	"strings"
)

// notesOf returns the section of a version in the list of changes.
func notesOf(changes, tag string) (string, error) {
	var out []string
	inside := false
	for line := range strings.Lines(changes) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			name, _, _ := strings.Cut(strings.TrimSpace(title), " ")
			inside = name == tag
			continue
		}
		if inside {
			out = append(out, line)
		}
	}
	text := strings.TrimSpace(strings.Join(out, ""))
	if text == "" {
		return "", fmt.Errorf("CHANGELOG.md has no section %q: write one with what changed", "## "+tag)
	}
	return text + "\n", nil
}
