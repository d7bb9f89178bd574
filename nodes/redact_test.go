package nodes

import (
	"strings"
	"testing"
)

func TestRedactHidesSecretsAndKeepsTheEnd(t *testing.T) {
	for _, c := range []struct{ in, secret string }{
		{"K3S_TOKEN=abc123 starting", "abc123"},
		{`export K3S_TOKEN="a b c"`, "a b c"},
		{"token: K10deadbeefdeadbeef00::server:pw", "pw"},
		{"joined with K10deadbeefdeadbeef00::server:pw", "pw"},
		{"Authorization: Bearer eyJhbGci", "eyJhbGci"},
		{"aws_secret_access_key = wJalrXUtn", "wJalrXUtn"},
		{"Get http://user:hunter2@prometheus:9090/api", "hunter2"},
		{"id AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"},
	} {
		if got := redact(c.in); strings.Contains(got, c.secret) {
			t.Errorf("%q became %q", c.in, got)
		}
	}
	if got := redact("boot failed: no route to server"); got != "boot failed: no route to server" {
		t.Errorf("got %q", got)
	}
	if got := redact(strings.Repeat("x", 10000) + "the end"); len(got) > 4200 || !strings.HasSuffix(got, "the end") {
		t.Errorf("%d characters", len(got))
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("token=secret")
	f.Fuzz(func(t *testing.T, s string) {
		if once := redact(s); len(once) > 4096+3+len("[redacted]@")*len(s) {
			t.Errorf("grew to %d", len(once))
		}
	})
}
