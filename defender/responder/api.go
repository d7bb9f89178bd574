package responder

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// account is where a pod finds what its service account needs.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// requestTimeout is for everything but watches, which the server ends after watchTimeout.
const (
	requestTimeout = 10 * time.Second
	watchTimeout   = 5 * time.Minute
)

// API is the way to the API server.
type API struct {
	URL       string
	Namespace string
	Token     func() (string, error) // read for each request: the kubelet renews it
	Client    *http.Client           // without a timeout: watches last
}

// InCluster returns the way that a pod has, by its service account.
func InCluster() (API, error) { return inCluster(account, os.Getenv) }

func inCluster(dir string, getenv func(string) string) (API, error) {
	const doing = "looking for the API server from inside a pod"
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return API{}, errors.New(doing + ": KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: respond to evictions in a pod only")
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return API{}, fmt.Errorf("%s: %w: set automountServiceAccountToken in the pod", doing, err)
	}
	namespace, err := os.ReadFile(filepath.Join(dir, "namespace"))
	if err != nil {
		return API{}, fmt.Errorf("%s: %w", doing, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return API{}, fmt.Errorf("%s: %s has no certificate", doing, filepath.Join(dir, "ca.crt"))
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		// A watch waits for what may not come for minutes: pings find out that the server is gone.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return API{
		URL: "https://" + net.JoinHostPort(host, port), Namespace: strings.TrimSpace(string(namespace)),
		Client: &http.Client{Transport: transport},
		Token: func() (string, error) {
			token, err := os.ReadFile(filepath.Join(dir, "token"))
			return strings.TrimSpace(string(token)), err
		},
	}, nil
}

// change is one of a watch.
type change struct {
	Type   string   `json:"type"`
	Object eviction `json:"object"`
}

func (a API) path(more string) string {
	return a.URL + "/apis/lifecycle.k8s.io/v1alpha1/namespaces/" + url.PathEscape(a.Namespace) + "/evictions" + more
}

// list returns the Evictions that this responder is asked about, and the version that a watch goes on from.
func (a API) list(ctx context.Context) (items []eviction, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []eviction `json:"items"`
	}
	body, err := a.do(ctx, http.MethodGet, a.path("?"+url.Values{"labelSelector": {Name}}.Encode()), nil)
	if err != nil {
		return nil, "", fmt.Errorf("listing evictions: %w", err)
	}
	defer func() { _ = body.Close() }()
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return nil, "", fmt.Errorf("listing evictions: %w", err)
	}
	return list.Items, list.Metadata.ResourceVersion, nil
}

// watch sends the changes since a version until the server ends the watch, which is no error.
func (a API) watch(ctx context.Context, version string, to chan<- change) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout+requestTimeout) // of a server that does not end it
	defer cancel()
	query := url.Values{"labelSelector": {Name}, "watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {strconv.Itoa(int(watchTimeout.Seconds()))}}
	body, err := a.do(ctx, http.MethodGet, a.path("?"+query.Encode()), nil)
	if err != nil {
		return fmt.Errorf("watching evictions: %w", err)
	}
	defer func() { _ = body.Close() }()
	for d := json.NewDecoder(body); ; {
		var c change
		switch err := d.Decode(&c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("watching evictions: %w", err)
		case c.Type == "ERROR": // the version is too old: the next list has a newer one
			return nil
		}
		select {
		case to <- c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report writes into the status of an Eviction. One that is gone needs none.
func (a API) report(ctx context.Context, e *eviction, r report) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	patch, err := r.patch()
	if err != nil {
		return err
	}
	body, err := a.do(ctx, http.MethodPatch, a.path("/"+url.PathEscape(e.Metadata.Name)+"/status"), patch)
	if gone := new(statusError); errors.As(err, &gone) && gone.code == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reporting to eviction %s: %w", e.Metadata.Name, err)
	}
	return body.Close()
}

// statusError is an answer that is no success.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string {
	text := fmt.Sprintf("the API server answered %d: %s", e.code, e.message)
	switch e.code {
	case http.StatusForbidden:
		text += "; give the service account the role of the chart muster-defender"
	case http.StatusNotFound:
		text += "; Kubernetes has evictions from 1.37 on, with the feature gate EvictionRequestAPI and the API lifecycle.k8s.io/v1alpha1"
	}
	return text
}

// do makes a request and returns its answer, which is to be closed.
func (a API) do(ctx context.Context, method, at string, patch []byte) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(patch))
	if err != nil {
		return nil, err
	}
	token, err := a.Token()
	if err != nil {
		return nil, fmt.Errorf("reading the service account's token: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/json")
	if patch != nil {
		r.Header.Set("Content-Type", "application/strategic-merge-patch+json")
	}
	answer, err := a.Client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }()
	var status struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(io.LimitReader(answer.Body, 1<<16)).Decode(&status) // the code says enough
	return nil, &statusError{answer.StatusCode, status.Message}
}
