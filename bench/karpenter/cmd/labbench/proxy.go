package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// counter counts the requests that pass through it to an API server, by verb. An autoscaler is given its address in place of the server's, so
// that nobody else's requests are among them.
type counter struct {
	next   http.Handler
	server *http.Server
	url    string

	mu    sync.Mutex
	verbs map[string]int
}

func newCounter(config *rest.Config, token string) (*counter, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("Authorization", "Bearer "+token) // clients send none without TLS
	}}
	proxy.FlushInterval = -1 // watches
	proxy.Transport = &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &counter{next: proxy, verbs: map[string]int{}, url: "http://" + l.Addr().String()}
	c.server = &http.Server{Handler: c, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = c.server.Serve(l) }()
	return c, nil
}

// ServeHTTP counts and passes on.
func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.verbs[verb(r)]++
	c.mu.Unlock()
	defer func() { // a watch that is cut off ends by this panic, which is of no interest
		if e := recover(); e != nil && e != http.ErrAbortHandler { //nolint:errorlint // it is that value
			panic(e)
		}
	}()
	c.next.ServeHTTP(w, r)
}

// verb is by which name Kubernetes knows a request; get also stands for lists.
func verb(r *http.Request) string {
	evicts := strings.HasSuffix(r.URL.Path, "/eviction")
	watches := r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1"
	switch {
	case r.Method == http.MethodGet && watches:
		return "watch"
	case r.Method == http.MethodPost && evicts:
		return "evict"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	}
	return strings.ToLower(r.Method)
}

// counts returns them as text, and their sum.
func (c *counter) counts() (string, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	sum := 0
	for _, v := range slices.Sorted(maps.Keys(c.verbs)) {
		parts = append(parts, fmt.Sprintf("%s %d", v, c.verbs[v]))
		sum += c.verbs[v]
	}
	return strings.Join(parts, ", "), sum
}

func (c *counter) close() { _ = c.server.Close() }

// kubeconfig writes one that leads through the counter, and returns its path.
func (c *counter) kubeconfig(dir string) (string, error) {
	k := clientcmdapi.NewConfig()
	k.Clusters["lab"] = &clientcmdapi.Cluster{Server: c.url}
	k.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab"}
	k.CurrentContext = "lab"
	path := filepath.Join(dir, "autoscaler.kubeconfig")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return path, clientcmd.WriteToFile(*k, path)
}
