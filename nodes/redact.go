package nodes

import "regexp"

// secretAssignments matches what looks like a secret in free text: K3s tokens, and values after names that say so.
var secretAssignments = regexp.MustCompile(`(?i)(K10[0-9a-f]{16,}::\S+|((token|secret|password|passwd|authorization|api[_-]?key|access[_-]?key)[a-z_-]*["']?\s*[:=]\s*)("[^"]*"|'[^']*'|(bearer\s+)?\S+)|AKIA[0-9A-Z]{16})`)

// redact replaces what looks like a secret and keeps only the end of long text, where a boot that failed tells why.
func redact(s string) string {
	const most = 4096
	s = secretAssignments.ReplaceAllString(s, "${2}[redacted]")
	if len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return s
}
