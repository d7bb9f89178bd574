package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cliflag "k8s.io/component-base/cli/flag"
	ksm "k8s.io/kube-state-metrics/v2/pkg/app"
	ksmoptions "k8s.io/kube-state-metrics/v2/pkg/options"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllersoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/muster-dev/muster/lab/network"
	"github.com/muster-dev/muster/lab/supervisor"
)

// patience is how long a component may take to come up.
const patience = 2 * time.Minute

// controlPlane is the components and how to reach them.
type controlPlane struct {
	dir        string
	kubeconfig string
	rest       *rest.Config
	authority  authority
	token      joinToken
	network    *network.Network // of real machines; nil: there are none
	inside     string           // URL of the API there
	failed     chan error       // of components that stopped by themselves

	cancel context.CancelFunc
	etcd   *embed.Etcd
	done   []chan struct{}
}

func newControlPlane(dir string) *controlPlane {
	return &controlPlane{dir: dir, token: newJoinToken(), failed: make(chan error, 8), cancel: func() {}}
}

func (c *controlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// start starts everything in the order in which one needs the other, and returns when pods can be created.
func (c *controlPlane) start(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	c.cancel = cancel
	etcd, err := c.startEtcd()
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if err := c.startAPIServer(ctx, etcd); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	client, err := kubernetes.NewForConfig(c.rest)
	if err != nil {
		return err
	}
	if err := c.until(ctx, "kube-apiserver", func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return err
	}
	if err := c.until(ctx, "the namespace of the join token", func() error {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := c.token.admit(ctx, client); err != nil {
		return err
	}
	if err := c.startControllers(ctx); err != nil {
		return fmt.Errorf("kube-controller-manager: %w", err)
	}
	if err := c.startScheduler(ctx); err != nil {
		return fmt.Errorf("kube-scheduler: %w", err)
	}
	if err := startKubelets(ctx, c.kubeconfig); err != nil {
		return fmt.Errorf("kwok: %w", err)
	}
	return c.until(ctx, "the default service account", func() error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// until tries until it works.
func (c *controlPlane) until(ctx context.Context, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not there: %w", what, err)
		case err := <-c.failed:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// run runs a component until the context ends.
func (c *controlPlane) run(ctx context.Context, what string, f func() error) {
	done := make(chan struct{})
	c.done = append(c.done, done)
	go func() {
		defer close(done)
		if err := f(); ctx.Err() == nil {
			c.failed <- fmt.Errorf("%s has stopped: %w", what, errors.Join(errors.New("by itself"), err))
		}
	}()
}

// stop stops everything. It doesn't wait long for those that take their time: nobody needs what they would still write.
func (c *controlPlane) stop() {
	c.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, d := range c.done {
		select {
		case <-d:
		case <-ctx.Done():
			return
		}
	}
	if c.etcd != nil {
		c.etcd.Close()
	}
}

// free returns the address of a free port on this machine. Another program may take it before it is used; the components open their
// ports themselves and can't be given one that is open.
func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (c *controlPlane) startEtcd() (string, error) {
	cfg := embed.NewConfig()
	cfg.Dir = c.path("etcd")
	for _, urls := range []*[]url.URL{&cfg.ListenClientUrls, &cfg.ListenPeerUrls} {
		addr, err := free()
		if err != nil {
			return "", err
		}
		*urls = []url.URL{{Scheme: "http", Host: addr}}
	}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = cfg.ListenClientUrls, cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100 // a single member may elect itself at once
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(zapcore.NewNopCore()))
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", err
	}
	c.etcd = e
	select {
	case <-e.Server.ReadyNotify():
		return cfg.ListenClientUrls[0].String(), nil
	case <-time.After(patience):
		return "", errors.New("it is not ready")
	}
}

// parse parses a component's flags.
func parse(sets cliflag.NamedFlagSets, args []string) error {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, s := range sets.FlagSets {
		all.AddFlagSet(s)
	}
	return all.Parse(args)
}

// writeSecrets makes the administrator's token and the key that signs service accounts' tokens.
func (c *controlPlane) writeSecrets() (token string, err error) {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	token = hex.EncodeToString(b)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	return token, errors.Join(
		os.WriteFile(c.path("tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600),
		os.WriteFile(c.path("service-accounts.key"), block, 0o600))
}

func (c *controlPlane) startAPIServer(ctx context.Context, etcd string) error {
	token, err := c.writeSecrets()
	if err != nil {
		return err
	}
	if c.authority, err = newAuthority(c.path("ca.crt"), c.path("ca.key")); err != nil {
		return fmt.Errorf("making the certificate authority: %w", err)
	}
	addr, err := free()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	o := apiserveroptions.NewServerRunOptions()
	advertised := "127.0.0.1"
	if c.network != nil {
		advertised = network.Gateway
		if o.SecureServing.Listener, err = c.listen(ctx, addr); err != nil {
			return err
		}
	}
	err = parse(o.Flags(), append(evictionRequests(), []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=" + advertised, // its certificate is for both addresses
		"--kubelet-preferred-address-types=InternalIP",
		"--secure-port=" + port,
		"--cert-dir=" + c.path("certificates"), // made there, self-signed
		"--token-auth-file=" + c.path("tokens.csv"),
		"--client-ca-file=" + c.authority.certificate,
		"--enable-bootstrap-token-auth",
		"--authorization-mode=Node,RBAC", // a kubelet reads and changes what is on its own node only
		"--enable-admission-plugins=NodeRestriction",
		"--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("service-accounts.key"),
		"--service-account-signing-key-file=" + c.path("service-accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--endpoint-reconciler-type=none",
		"--shutdown-watch-termination-grace-period=0s",
	}...))
	if err != nil {
		return err
	}
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed, err := o.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return errors.Join(errs...)
	}
	config, err := apiserver.NewConfig(completed)
	if err != nil {
		return err
	}
	if c.network != nil { // logs, exec and port-forward go to kubelets there, and what is proxied to pods
		config.KubeAPIs.KubeletClientConfig.Lookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return c.network.Dial, nil }
		config.KubeAPIs.ControlPlane.ProxyTransport.DialContext = c.network.Dial
	}
	if err := c.supervise(ctx, &config.Aggregator.GenericConfig.Config); err != nil {
		return fmt.Errorf("the supervisor of K3s: %w", err)
	}
	complete, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := apiserver.CreateServerChain(complete)
	if err != nil {
		return err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	c.run(ctx, "kube-apiserver", func() error { return prepared.Run(ctx) })
	return c.writeKubeconfig("https://"+addr, token)
}

// supervise lets K3s' supervisor answer at the address of the API server, as it does in K3s.
func (c *controlPlane) supervise(ctx context.Context, api *server.Config) error {
	client, err := kubernetes.NewForConfig(api.LoopbackClientConfig)
	if err != nil {
		return err
	}
	s := supervisor.New(c.token.String(), client, c.authority.sign)
	build := api.BuildHandlerChainFunc
	api.BuildHandlerChainFunc = func(h http.Handler, o *server.Config) http.Handler { return s.Beside(build(h, o)) }
	c.run(ctx, "the supervisor of K3s", func() error { s.Tend(ctx); return nil })
	return nil
}

// listen opens the API server's address here, and one on the machines' network.
func (c *controlPlane) listen(ctx context.Context, addr string) (net.Listener, error) {
	inside, err := c.network.Listen(ctx, net.JoinHostPort(network.Gateway, "6443"))
	if err != nil {
		return nil, fmt.Errorf("listening on the machines' network: %w", err)
	}
	here, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, errors.Join(err, inside.Close())
	}
	c.inside = "https://" + inside.Addr().String()
	return network.Merge(here, inside), nil
}

// certificate returns the path of what the API server's certificate is checked with.
func (c *controlPlane) certificate() string {
	return filepath.Join(c.path("certificates"), "apiserver.crt")
}

func (c *controlPlane) writeKubeconfig(server, token string) error {
	ca, err := os.ReadFile(c.certificate())
	if err != nil {
		return err
	}
	c.rest = &rest.Config{Host: server, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1, WarningHandler: rest.NoWarnings{}}
	c.kubeconfig = c.path("kubeconfig")
	k := clientcmdapi.NewConfig()
	k.Clusters["lab"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	k.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	k.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "admin"}
	k.CurrentContext = "lab"
	return clientcmd.WriteToFile(*k, c.kubeconfig)
}

// fast is what the clients of both controllers and scheduler get, so that tests don't wait for rate limits.
func (c *controlPlane) fast() []string {
	return []string{"--kubeconfig=" + c.kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=2000"}
}

func (c *controlPlane) startControllers(ctx context.Context) error {
	o, err := controllersoptions.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	known, disabled, aliases := controllers.KnownControllers(), controllers.ControllersDisabledByDefault(), controllers.ControllerAliases()
	sets := o.Flags(known, disabled, aliases)
	o.ParsedFlags = &sets
	err = parse(sets, append(c.fast(),
		"--service-account-private-key-file="+c.path("service-accounts.key"),
		"--root-ca-file="+c.certificate(),
		"--use-service-account-credentials=false",
		"--cluster-signing-cert-file="+c.authority.certificate,
		"--cluster-signing-key-file="+c.authority.key,
		"--node-monitor-period=1s",
		"--node-monitor-grace-period="+strconv.Itoa(int(silence/time.Second))+"s",
	))
	if err != nil {
		return err
	}
	config, err := o.Config(ctx, known, disabled, aliases)
	if err != nil {
		return err
	}
	c.run(ctx, "kube-controller-manager", func() error { return controllers.Run(ctx, config.Complete()) })
	return nil
}

func (c *controlPlane) startScheduler(ctx context.Context) error {
	o := scheduleroptions.NewOptions()
	if err := parse(*o.Flags, c.fast()); err != nil {
		return err
	}
	config, sched, err := scheduler.Setup(ctx, o)
	if err != nil {
		return err
	}
	c.run(ctx, "kube-scheduler", func() error { return scheduler.Run(ctx, config, sched) })
	return nil
}

// startStateMetrics starts kube-state-metrics and returns where it listens.
func (c *controlPlane) startStateMetrics(ctx context.Context) (string, error) {
	addr, err := free()
	if err != nil {
		return "", err
	}
	own, err := free()
	if err != nil {
		return "", err
	}
	o := ksmoptions.NewOptions()
	o.Kubeconfig, o.Host, o.TelemetryHost, o.TotalShards = c.kubeconfig, "127.0.0.1", "127.0.0.1", 1
	for addr, port := range map[string]*int{addr: &o.Port, own: &o.TelemetryPort} {
		_, s, err := net.SplitHostPort(addr)
		if err != nil {
			return "", err
		}
		if *port, err = strconv.Atoi(s); err != nil {
			return "", err
		}
	}
	o.Resources = ksmoptions.ResourceSet{"pods": {}, "nodes": {}}
	o.ServerReadTimeout, o.ServerWriteTimeout, o.ServerIdleTimeout, o.ServerReadHeaderTimeout = time.Minute, time.Minute, 5*time.Minute, 5*time.Second
	c.run(ctx, "kube-state-metrics", func() error { return ksm.RunKubeStateMetrics(ctx, o) })
	return addr, c.until(ctx, "kube-state-metrics", func() error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
