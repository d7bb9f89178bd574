package prom

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/muster-dev/muster/nodes"
)

const (
	mostAnswer = 4 << 20     // bytes of one answer; a thousand nodes take a tenth of a megabyte
	secretAge  = time.Minute // how long a token is used before its reference is read again
)

// Open returns the signals of the Prometheus that c describes, for decisions by policy p. It reads the CA but neither the token nor
// the server.
func Open(ctx context.Context, c Config, p nodes.Policy) (*Signals, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, MaxIdleConnsPerHost: 8, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true}
	if c.CARef != "" {
		pem, err := c.fetch(ctx, c.CARef)
		if err != nil {
			return nil, fmt.Errorf("reading PROMETHEUS_CA_REF: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM([]byte(pem)) {
			return nil, errors.New("PROMETHEUS_CA_REF names no PEM certificate")
		}
		tr.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	// A redirect could lead to another host, which is not to get the token, and would turn a query into one without its text.
	hc := &http.Client{Transport: &transport{config: c, next: tr}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	client, err := api.NewClient(api.Config{Address: c.URL, Client: hc})
	if err != nil {
		return nil, fmt.Errorf("opening PROMETHEUS_URL: %w", err)
	}
	return New(v1.NewAPI(client), c, p), nil
}

// transport adds the credentials and bounds the answers.
type transport struct {
	config Config
	next   http.RoundTripper

	mu     sync.Mutex
	secret string
	until  time.Time
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	secret, err := t.credentials(r.Context())
	if err != nil {
		return nil, err
	}
	if secret != "" {
		r = r.Clone(r.Context())
		if t.config.TokenRef != "" {
			r.Header.Set("Authorization", "Bearer "+secret)
		} else {
			user, password, _ := strings.Cut(secret, ":")
			r.SetBasicAuth(user, password)
		}
	}
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusUnauthorized { // it may have been replaced: the next request reads it again
		t.mu.Lock()
		t.until = time.Time{}
		t.mu.Unlock()
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: mostAnswer}
	return resp, nil
}

// credentials returns the token or USER:PASSWORD, "" if there is none. A reference that can't be read now leaves what is known: it
// may well be good still.
func (t *transport) credentials(ctx context.Context) (string, error) {
	ref, env := t.config.TokenRef, "PROMETHEUS_TOKEN_REF"
	if ref == "" {
		ref, env = t.config.BasicRef, "PROMETHEUS_BASIC_AUTH_REF"
	}
	if ref == "" {
		return "", nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if now.Before(t.until) {
		return t.secret, nil
	}
	s, err := t.config.fetch(ctx, ref)
	s = strings.TrimSpace(s)
	switch {
	case err != nil:
	case s == "" || strings.ContainsAny(s, "\r\n"):
		err = errors.New("it is empty or has more than one line")
	case env == "PROMETHEUS_BASIC_AUTH_REF" && !strings.Contains(s, ":"):
		err = errors.New("it is not USER:PASSWORD")
	}
	if err == nil {
		t.secret, t.until = s, now.Add(secretAge)
	} else if t.secret == "" {
		return "", fmt.Errorf("reading %s: %w", env, err)
	}
	return t.secret, nil
}

// bounded is an answer of which only so much is read.
type bounded struct {
	io.ReadCloser
	left int64
}

// Read is io.Reader's.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer is larger than %d MiB: the query returns far more series than one per node", mostAnswer>>20)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
