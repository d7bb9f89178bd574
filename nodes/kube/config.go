package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/setting"
)

// Config says how to reach a cluster. With neither Kubeconfig nor APIURL the pod's own service account is used.
type Config struct {
	Kubeconfig string        // path of a kubeconfig, "" for none
	APIURL     string        // https URL of the API, "" for none
	CARef      string        // reference to the PEM of the CA that signed the API's certificate, with APIURL
	TokenRef   string        // reference to the token, with APIURL
	Timeout    time.Duration // of one request
	Drain      Rules
	Buffers    bool // Options.Buffers

	// Fetch reads references of other kinds than file:PATH, such as those to a parameter or secret of the cloud; nil if there are
	// none.
	Fetch func(ctx context.Context, ref string) (string, error)
	Clock nodes.Clock // nil: nodes.SystemClock
}

// settings is the one list of names, defaults and meanings; help, documentation and parsing all read it.
var settings = []setting.Setting[Config]{
	setting.New("KUBECONFIG", "", "path of a kubeconfig; without it and KUBE_API_URL the pod's service account is used", setting.Text(func(c *Config) *string { return &c.Kubeconfig })),
	setting.New("KUBE_API_URL", "", "https URL of the Kubernetes API", setting.URL(func(c *Config) *string { return &c.APIURL })),
	setting.New("KUBE_CA_REF", "", "where the PEM of the cluster's CA is, for example file:/etc/muster/ca.crt", setting.Text(func(c *Config) *string { return &c.CARef })),
	setting.New("KUBE_TOKEN_REF", "", "where the API token is, for example file:/etc/muster/token; it is read again when it is replaced", setting.Text(func(c *Config) *string { return &c.TokenRef })),
	setting.New("KUBE_TIMEOUT_SEC", "30", "most time for one request to the Kubernetes API", setting.Seconds(func(c *Config) *time.Duration { return &c.Timeout })),
	setting.New("DRAIN_BARE_PODS", "abort", "pods without a controller: abort the drain, or evict them for good", action(func(c *Config) *Action { return &c.Drain.BarePods })),
	setting.New("DRAIN_LOCAL_STORAGE", "abort", "pods with emptyDir, hostPath or local persistent volumes: abort the drain, or evict them and lose the data", action(func(c *Config) *Action { return &c.Drain.LocalStorage })),
}

func action(f func(*Config) *Action) func(*Config, string) error {
	return func(c *Config, v string) error {
		a := Action(v)
		if a != Abort && a != Evict {
			return errors.New("use abort or evict")
		}
		*f(c) = a
		return nil
	}
}

// Settings lists every setting in the order in which documentation shows them.
func Settings() []setting.Info { return setting.Describe(settings) }

// ConfigFromEnv reads the settings from the environment that lookup stands for. The error is a *setting.Error that lists everything
// that is wrong, both values that can't be read and values that contradict each other.
func ConfigFromEnv(lookup setting.Lookup) (Config, error) {
	var c Config
	err := setting.Parse(&c, settings, lookup, Config.problems)
	return c, err
}

// problems checks c as a whole; each check stands alone so that one mistake never hides another.
func (c Config) problems() []setting.Problem {
	var out []setting.Problem
	check := func(ok bool, env, value, fix string) {
		if !ok {
			out = append(out, setting.Problem{Setting: env, Value: value, Fix: fix})
		}
	}
	check(c.Timeout > 0, "KUBE_TIMEOUT_SEC", fmt.Sprint(int64(c.Timeout/time.Second)), "use a whole number of seconds above 0")
	check(c.Kubeconfig == "" || c.APIURL == "", "KUBECONFIG", c.Kubeconfig, "set either this or KUBE_API_URL: they may name different clusters")
	u, err := url.Parse(c.APIURL)
	check(c.APIURL == "" || err == nil && u.Scheme == "https", "KUBE_API_URL", c.APIURL, "use https: the token must not cross the network in the clear")
	for env, ref := range map[string]string{"KUBE_CA_REF": c.CARef, "KUBE_TOKEN_REF": c.TokenRef} {
		check(c.APIURL == "" || ref != "", env, ref, "set it: KUBE_API_URL needs it")
		check(c.APIURL != "" || ref == "", env, ref, "set KUBE_API_URL too, or leave this out: it goes with that only")
		kind, rest, ok := strings.Cut(ref, ":")
		check(ref == "" || ok && kind != "" && rest != "", env, redactedRef(ref), "write a reference such as file:PATH, not the thing itself")
	}
	return out
}

// redactedRef returns what may be shown of a value that should be a reference: not the value if it looks like the secret itself.
func redactedRef(ref string) string {
	if len(ref) > 100 || strings.HasPrefix(ref, "ey") || strings.HasPrefix(ref, "K10") || strings.Contains(ref, "BEGIN") {
		return "(not shown)"
	}
	return ref
}

// Open returns the cluster that c describes. It reads what c refers to, except the token, which is read when it is first needed; it
// does not talk to the cluster.
func Open(ctx context.Context, c Config) (*Cluster, error) {
	rc, tokens, err := c.reach(ctx)
	if err != nil {
		return nil, err
	}
	if rc.Insecure {
		return nil, errors.New("the kubeconfig says insecure-skip-tls-verify: put the cluster's CA there instead, any server that answers would get the token")
	}
	cluster, err := New(rc, Options{Drain: c.Drain, Clock: c.Clock, Timeout: c.Timeout, Buffers: c.Buffers})
	if err != nil {
		return nil, err
	}
	cluster.token = tokens
	return cluster, nil
}

// reach returns the way to the API and, if there is one, what reads its token.
func (c Config) reach(ctx context.Context) (*rest.Config, func(context.Context) (string, error), error) {
	switch {
	case c.APIURL != "":
		return c.reachURL(ctx)
	case c.Kubeconfig != "":
		rc, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
		if err != nil {
			return nil, nil, fmt.Errorf("reading KUBECONFIG %s: %w", c.Kubeconfig, err)
		}
		return rc, tokenOf(rc), nil
	}
	rc, err := rest.InClusterConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("using the pod's service account: %w; outside a cluster set KUBECONFIG or KUBE_API_URL", err)
	}
	return rc, tokenOf(rc), nil
}

func (c Config) reachURL(ctx context.Context) (*rest.Config, func(context.Context) (string, error), error) {
	ca, err := c.fetch(ctx, c.CARef)
	if err != nil {
		return nil, nil, fmt.Errorf("reading KUBE_CA_REF %s: %w", redactedRef(c.CARef), err)
	}
	if !strings.Contains(ca, "BEGIN CERTIFICATE") {
		return nil, nil, fmt.Errorf("KUBE_CA_REF %s names no PEM certificate; on a K3s server it is /var/lib/rancher/k3s/server/tls/server-ca.crt", redactedRef(c.CARef))
	}
	read := func(ctx context.Context) (string, error) {
		t, err := c.fetch(ctx, c.TokenRef)
		if t = strings.TrimSpace(t); err == nil && t == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			return "", fmt.Errorf("reading KUBE_TOKEN_REF %s: %w", redactedRef(c.TokenRef), err)
		}
		return t, nil
	}
	s := &tokenSource{read: read, clock: c.Clock}
	if s.clock == nil {
		s.clock = nodes.SystemClock{}
	}
	rc := &rest.Config{Host: c.APIURL, TLSClientConfig: rest.TLSClientConfig{CAData: []byte(ca)}, WrapTransport: s.wrap}
	return rc, read, nil
}

// fetch reads what a reference names.
func (c Config) fetch(ctx context.Context, ref string) (string, error) {
	if path, ok := strings.CutPrefix(ref, "file:"); ok {
		b, err := os.ReadFile(path)
		return string(b), err
	}
	if c.Fetch == nil {
		return "", errors.New("only file:PATH can be read here")
	}
	return c.Fetch(ctx, ref)
}

// tokenOf returns what reads the token that a configuration uses; nil if it uses none, or one that a helper program makes.
func tokenOf(rc *rest.Config) func(context.Context) (string, error) {
	switch {
	case rc.BearerTokenFile != "":
		return func(context.Context) (string, error) {
			b, err := os.ReadFile(rc.BearerTokenFile)
			return strings.TrimSpace(string(b)), err
		}
	case rc.BearerToken != "":
		return func(context.Context) (string, error) { return rc.BearerToken, nil }
	}
	return nil
}
