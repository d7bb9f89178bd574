package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// tokenAge is how long a token is used before its reference is read again. Rotation keeps the old token valid for longer than that.
const tokenAge = time.Minute

// tokenSource puts a token that may be replaced at any time into requests.
type tokenSource struct {
	read  func(context.Context) (string, error)
	clock nodes.Clock

	mu    sync.Mutex
	token string
	since time.Time
}

// get returns the token, read again if it is old or is the one that the API has just refused. A reference that can't be read now
// leaves the token that is known: it may well be good still.
func (s *tokenSource) get(ctx context.Context, refused string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != "" && s.token != refused && s.clock.Now().Sub(s.since) < tokenAge {
		return s.token, nil
	}
	t, err := s.read(ctx)
	switch {
	case err == nil:
		s.token, s.since = t, s.clock.Now()
	case s.token == "" || s.token == refused:
		return "", err
	}
	return s.token, nil
}

func (s *tokenSource) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return s.send(next, r) })
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// send sends a request with the token. If the API refuses the token and another one has taken its place meanwhile, the request is
// sent once more with that.
func (s *tokenSource) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	token, err := s.get(r.Context(), "")
	if err != nil {
		return nil, closing(r, err)
	}
	first, err := authorized(r, token)
	if err != nil {
		return nil, closing(r, err)
	}
	resp, err := next.RoundTrip(first)
	if err != nil || resp.StatusCode != http.StatusUnauthorized || r.Body != nil && r.GetBody == nil {
		return resp, err
	}
	fresh, err := s.get(r.Context(), token)
	if err != nil || fresh == token {
		return resp, nil //nolint:nilerr // the refusal says what matters
	}
	again, err := authorized(r, fresh)
	if err != nil {
		return resp, nil //nolint:nilerr // as above
	}
	_ = resp.Body.Close()
	if again.GetBody != nil {
		if again.Body, err = again.GetBody(); err != nil {
			return nil, err
		}
	}
	return next.RoundTrip(again)
}

// closing closes a request's body, as a RoundTripper must whatever happens.
func closing(r *http.Request, err error) error {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return err
}

func authorized(r *http.Request, token string) (*http.Request, error) {
	if strings.ContainsAny(token, "\r\n") {
		return nil, errors.New("the token that KUBE_TOKEN_REF names has more than one line")
	}
	out := r.Clone(r.Context())
	out.Header.Set("Authorization", "Bearer "+token)
	return out, nil
}

// TokenExpires returns when the token that the API is asked with expires; zero for one that never does, for a client certificate,
// and for a token that doesn't say. It re-reads the reference, so that it tells of a rotation that was forgotten as well as of one
// that has not arrived.
func (c *Cluster) TokenExpires(ctx context.Context) (time.Time, error) {
	if c.token == nil {
		return time.Time{}, nil
	}
	t, err := c.token(ctx)
	if err != nil {
		return time.Time{}, err
	}
	return expiry(t)
}

// expiry returns the exp claim (RFC 7519, 4.1.4) of a token that is a JWT; zero if it has none or is none.
func expiry(token string) (time.Time, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}, nil
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // three words with dots between them are not yet a JWT
	}
	var claims struct {
		Exp *json.Number `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.Exp == nil {
		return time.Time{}, nil //nolint:nilerr // as above
	}
	f, err := claims.Exp.Float64()
	if err != nil || f <= 0 || f > 253402300799 { // the year 9999
		return time.Time{}, fmt.Errorf("the token's expiry %q is no time", claims.Exp.String())
	}
	return time.Unix(int64(f), 0), nil
}
