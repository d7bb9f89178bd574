package supervisor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Agent is a machine that asks for its serving certificate. All fields are required.
type Agent struct {
	Server   string       // URL
	Client   *http.Client // that trusts the server
	Token    string       // to join with
	Name     string       // of the node
	Address  string       // of the machine
	Password string       // path of the file that keeps the node's password; it is made if there is none
	Log      io.Writer
}

// Certificate is a node's certificate and its key, in PEM.
type Certificate struct{ Certificate, Key []byte }

// retry is the shortest time between two requests; the longest is twice that.
const retry = 5 * time.Second

// Ask asks until the server answers with a certificate, and logs as K3s does why it does not.
func (a Agent) Ask(ctx context.Context) (Certificate, error) {
	for {
		c, err := a.ask(ctx)
		if err == nil {
			return c, nil
		}
		_, _ = fmt.Fprintf(a.Log, "time=%q level=info msg=%q\n", time.Now().Format(time.RFC3339),
			"Waiting to retrieve agent configuration; server is not ready: "+err.Error())
		select {
		case <-ctx.Done():
			return c, context.Cause(ctx)
		case <-time.After(retry + mathrand.N(retry)): //nolint:gosec // it keeps agents from asking together
		}
	}
}

// ask asks once.
func (a Agent) ask(ctx context.Context) (c Certificate, err error) {
	password, err := a.password()
	if err != nil {
		return c, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	plain, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return c, err
	}
	wanted, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: a.Name}}, private)
	if err != nil {
		return c, err
	}

	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.Server+certificatePath, bytes.NewReader(wanted))
	if err != nil {
		return c, err
	}
	for header, value := range map[string]string{"Authorization": "Bearer " + a.Token, headerName: a.Name, headerPassword: password, headerAddress: a.Address} {
		r.Header.Set(header, value)
	}
	answer, err := a.Client.Do(r)
	if err != nil {
		return c, err
	}
	defer func() { _ = answer.Body.Close() }()
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusForbidden:
		return c, fmt.Errorf("Node password rejected, duplicate hostname or contents of '%s' may not match server node-passwd entry, "+ //nolint:staticcheck // K3s' words
			"try enabling a unique node name with the --with-node-id flag", a.Password)
	default:
		return c, fmt.Errorf("%s: %s", r.URL, answer.Status)
	}
	c.Certificate, err = io.ReadAll(answer.Body)
	c.Key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: plain})
	return c, err
}

// password returns the node's password, which is made once.
func (a Agent) password() (string, error) {
	text, err := os.ReadFile(a.Password)
	if !errors.Is(err, fs.ErrNotExist) {
		return strings.TrimSpace(string(text)), err
	}
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	made := hex.EncodeToString(b)
	return made, errors.Join(
		os.MkdirAll(filepath.Dir(a.Password), 0o755),
		os.WriteFile(a.Password, []byte(made+"\n"), 0o600))
}
