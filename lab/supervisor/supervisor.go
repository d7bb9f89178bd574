// Package supervisor stands in for the part of K3s' server that its agents talk to before
// their kubelets begin: it gives a node its serving certificate if the node shows the join
// token, and the password that its name came with first. The requests, the answers, the
// hashes and the secrets are K3s'. Agent is the other side.
package supervisor

import (
	"context"
	"crypto/subtle"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// Of requests: names of K3s.
const (
	certificatePath = "/v1-k3s/serving-kubelet.crt"
	headerName      = "k3s-Node-Name"
	headerPassword  = "k3s-Node-Password"
	headerAddress   = "k3s-Node-IP"
)

// Sign signs what a certificate is to say of a public key, and returns it in DER.
type Sign func(template *x509.Certificate, public any) ([]byte, error)

// Server is the server's side. It is made by New.
type Server struct {
	token     string
	sign      Sign
	passwords passwords
}

// New returns a server that takes one join token.
func New(token string, client kubernetes.Interface, sign Sign) *Server {
	return &Server{token: token, sign: sign, passwords: passwords{client}}
}

// Tend keeps the passwords of nodes that exist, and no others, until the context ends. What
// fails is tried again a second later.
func (s *Server) Tend(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		_ = s.passwords.tend(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// Beside answers K3s' agents, at the address of the Kubernetes API as K3s does, and leaves
// everything else to the API.
func (s *Server) Beside(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != certificatePath {
			api.ServeHTTP(w, r)
			return
		}
		certificate, status, err := s.certificate(r)
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		_, _ = w.Write(certificate) // the client may have gone
	})
}

// certificate returns the certificate that a request asks for, or the status with which it
// is rejected.
func (s *Server) certificate(r *http.Request) (certificate []byte, status int, err error) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		return nil, http.StatusUnauthorized, errors.New("not authorized")
	}
	name, password := strings.ToLower(r.Header.Get(headerName)), r.Header.Get(headerPassword)
	if name == "" || password == "" {
		return nil, http.StatusBadRequest, fmt.Errorf("the headers %s and %s must both be set", headerName, headerPassword)
	}
	request, err := requested(r)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}

	switch err := s.passwords.ensure(r.Context(), name, password); {
	case errors.Is(err, errWrongPassword):
		return nil, http.StatusForbidden, fmt.Errorf("unable to verify password for node %s: %w", name, err)
	case err != nil:
		return nil, http.StatusInternalServerError, err
	}

	template := &x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	if ip := net.ParseIP(r.Header.Get(headerAddress)); ip != nil {
		template.IPAddresses = append(template.IPAddresses, ip)
	}
	signed, err := s.sign(template, request.PublicKey)
	if err != nil {
		return nil, http.StatusInternalServerError, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), http.StatusOK, nil
}

// requested reads the signing request of a request.
func requested(r *http.Request) (*x509.CertificateRequest, error) {
	der, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	request, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("reading the signing request: %w", err)
	}
	return request, request.CheckSignature()
}
