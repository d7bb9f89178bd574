package nodes

import "github.com/muster-dev/muster/internal/secret"

// redact is secret.Redact, but keeps only the end of long text, where a boot that failed tells why.
func redact(s string) string {
	const most = 4096
	s = secret.Redact(s)
	if len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return s
}
