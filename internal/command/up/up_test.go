package up

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReadToken: the line's end is no part of the token. What is no token, the tests of the
// command have.
func TestReadToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	token, err := readToken(file)
	if err != nil {
		t.Fatal(err)
	}
	if token != "0123456789abcdef" {
		t.Errorf("got %q", token)
	}
}
