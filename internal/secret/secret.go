// Package secret finds what looks like a secret in text for people.
package secret

import "regexp"

// assignments matches what looks like a secret in free text: K3s tokens, and values after names that say so.
var assignments = regexp.MustCompile(`(?i)(K10[0-9a-f]{16,}::\S+|((token|secret|password|passwd|authorization|api[_-]?key|access[_-]?key)[a-z_-]*["']?\s*[:=]\s*)("[^"]*"|'[^']*'|(bearer\s+)?\S+)|AKIA[0-9A-Z]{16})`)

// urlPasswords matches the password in a URL.
var urlPasswords = regexp.MustCompile(`(://[^/\s:@"]*:)[^/\s@"]+@`)

// Redact replaces what looks like a secret in text that is about to be shown to a person.
func Redact(s string) string {
	s = assignments.ReplaceAllString(s, "${2}[redacted]")
	return urlPasswords.ReplaceAllString(s, "${1}[redacted]@")
}
