package ingest

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
)

// minToken is how many bytes a token has at least.
const minToken = 16

// Access says which senders are admitted: those with a token of a file, one per line, or all if there
// is no file. The file is read for each request, so a token may be replaced at any time.
type Access struct{ File string }

// Check reports what is wrong with the file.
func (a Access) Check() error {
	if a.File == "" {
		return nil
	}
	_, err := a.tokens()
	return err
}

func (a Access) tokens() ([]string, error) {
	content, err := os.ReadFile(a.File)
	if err != nil {
		return nil, fmt.Errorf("reading the tokens: %w", err)
	}
	tokens := strings.Fields(string(content))
	if len(tokens) == 0 {
		return nil, fmt.Errorf("%s has no token: write one per line", a.File)
	}
	for i, token := range tokens {
		if len(token) < minToken {
			return nil, fmt.Errorf("token %d of %s has %d bytes: give it at least %d", i+1, a.File, len(token), minToken)
		}
	}
	return tokens, nil
}

var (
	errNoToken  = errors.New("the request has no token that is known: send Authorization: Bearer TOKEN, with a token of the file that --token-file names")
	errNoTokens = errors.New("the tokens can't be read: look at the log of muster defender ingest")
)

// guard admits requests with a token.
func (a Access) guard(next http.Handler) http.Handler {
	if a.File == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens, err := a.tokens()
		if err != nil {
			respond(w, responseOf(Receipt{}, &Refusal{Status: http.StatusServiceUnavailable, RetryAfter: 5 * retryAfter, Err: errNoTokens}))
			return
		}
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || !contains(tokens, given) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			respond(w, responseOf(Receipt{}, &Refusal{Status: http.StatusUnauthorized, Err: errNoToken}))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// contains reports whether a token is among some, in a time that doesn't tell how much of it is right.
func contains(tokens []string, given string) bool {
	sum := sha256.Sum256([]byte(given))
	found := 0
	for _, token := range tokens {
		of := sha256.Sum256([]byte(token))
		found |= subtle.ConstantTimeCompare(sum[:], of[:])
	}
	return found == 1
}
