package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/lab/inotify"
	"github.com/muster-dev/muster/lab/machine"
	"github.com/muster-dev/muster/lab/supervisor"
)

// agentConfig is what the lab's stand-in for `k3s agent` reads of K3s' configuration. The
// plus signs ask K3s to add to what other files say.
type agentConfig struct {
	Server      string   `json:"server"`
	TokenFile   string   `json:"token-file"`
	NodeName    string   `json:"node-name"`
	NodeLabels  []string `json:"node-label+"`
	NodeTaints  []string `json:"node-taint+"`
	KubeletArgs []string `json:"kubelet-arg+"`
}

// Where a node keeps things.
const (
	k3s            = "/usr/local/bin/k3s"
	agentConfigs   = "/etc/rancher/k3s/config.yaml.d/*.yaml"
	apiCertificate = "/usr/local/share/lab/server-ca.crt" // the image has it: K3s takes it from the server, by the digest in its token
	containerd     = "/run/containerd/containerd.sock"
	kubeletConfig  = "/etc/kubernetes/kubelet.json"
	bootstrap      = "/etc/kubernetes/bootstrap.kubeconfig"
	kubeletState   = "/var/lib/kubelet"

	nodePassword       = "/etc/rancher/node/password"
	servingCertificate = "/var/lib/rancher/k3s/agent/serving-kubelet.crt"
	servingKey         = "/var/lib/rancher/k3s/agent/serving-kubelet.key"
)

// agent does what `k3s agent` does, with the same configuration: it runs a container runtime
// and becomes a kubelet.
func agent(ctx context.Context) error {
	c, err := readAgentConfig(agentConfigs)
	if err != nil {
		return err
	}
	address, pods, err := ownAddress()
	if err != nil {
		return err
	}
	if err := c.write(pods); err != nil {
		return err
	}
	config, err := admitted(ctx)
	if err != nil {
		return err
	}
	if err := inotify.Check(inotify.Node); err != nil {
		return err
	}
	if err := certify(ctx, config, c.NodeName, address); err != nil {
		return err
	}
	if err := startRuntime(ctx); err != nil {
		return err
	}
	args := []string{"lab", "kubelet", "--config=" + kubeletConfig, "--bootstrap-kubeconfig=" + bootstrap, "--kubeconfig=" + kubeletState + "/kubeconfig",
		"--cert-dir=" + kubeletState + "/pki", "--tls-cert-file=" + servingCertificate, "--tls-private-key-file=" + servingKey, "--hostname-override=" + c.NodeName, "--node-ip=" + address,
		"--node-labels=" + strings.Join(c.NodeLabels, ","), "--register-with-taints=" + strings.Join(c.NodeTaints, ",")}
	for _, a := range c.KubeletArgs {
		args = append(args, "--"+a)
	}
	// By this name the kernel's log knows it: K3s' kubelet is a part of the agent.
	return syscall.Exec(k3s, args, os.Environ())
}

// readAgentConfig merges K3s' configuration files, and says everything that is missing.
func readAgentConfig(pattern string) (c agentConfig, err error) {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return c, err
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return c, err
		}
		before := c.KubeletArgs
		c.KubeletArgs = nil
		if err := yaml.UnmarshalStrict(text, &c); err != nil {
			return c, fmt.Errorf("%s: %w", name, err)
		}
		c.KubeletArgs = append(before, c.KubeletArgs...)
	}
	var errs []error
	for setting, value := range map[string]string{"server": c.Server, "token-file": c.TokenFile, "node-name": c.NodeName} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is missing: write it into a file %s", setting, pattern))
		}
	}
	return c, errors.Join(errs...)
}

// ownAddress returns the machine's address, and the range of its pods, which the lab's
// network routes to it.
func ownAddress() (address, pods string, err error) {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return "", "", fmt.Errorf("the machine has no network: %w", err)
	}
	all, err := eth0.Addrs()
	if err != nil {
		return "", "", err
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil {
			return n.IP.String(), fmt.Sprintf("10.244.%d.0/24", n.IP.To4()[3]-10), nil
		}
	}
	return "", "", errors.New("the machine has no address")
}

// runtimeConfig lets containers run below a process that may not lower its OOM score, and
// keeps to images that the node has.
const runtimeConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "` + pauseImage + `"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
`

// podNetwork gives pods addresses of a range, behind a bridge.
func podNetwork(pods string) map[string]any {
	return map[string]any{"cniVersion": "1.0.0", "name": "lab", "plugins": []any{map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
		"ipam": map[string]any{"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": pods}}}, "routes": []any{map[string]any{"dst": "0.0.0.0/0"}}},
	}}}
}

// kubeletSettings are K3s' where nothing else is said. The kubelet answers every caller that
// reaches it: only the API server and the other machines do.
var kubeletSettings = map[string]any{
	"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
	"failCgroupV1": false, "failSwapOn": false, "cgroupDriver": "cgroupfs", // as the lab's machines are
	"containerRuntimeEndpoint": "unix://" + containerd,
	"authentication":           map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
	"authorization":            map[string]any{"mode": "AlwaysAllow"},
	"resolvConf":               "/etc/resolv.conf",
	"readOnlyPort":             0,
	"makeIPTablesUtilChains":   false,
	// The disk is that of the machine that the lab runs on: how full it is says nothing of the node.
	"imageGCHighThresholdPercent": 100,
	"evictionHard":                map[string]any{"memory.available": "100Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
	// What it sends to find a dead one after seconds, as the lab's controllers do.
	"nodeStatusUpdateFrequency": "2s", "nodeLeaseDurationSeconds": int(lease / time.Second),
}

// kubeletConfiguration writes the settings of the kubelet. A machine that is to have fewer
// processors than the lab's reserves the others, so that pods get no more of them.
func kubeletConfiguration() ([]byte, error) {
	text, err := os.ReadFile(machine.CPUs)
	if err != nil {
		return nil, fmt.Errorf("reading how many processors are for pods: %w", err)
	}
	wanted, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("reading how many processors are for pods, from %s: %w", machine.CPUs, err)
	}
	settings := maps.Clone(kubeletSettings)
	if others := runtime.NumCPU() - wanted; wanted > 0 && others > 0 {
		settings["systemReserved"] = map[string]string{"cpu": strconv.Itoa(others)}
		settings["enforceNodeAllocatable"] = []string{"pods"}
	}
	return json.Marshal(settings)
}

func (c agentConfig) write(pods string) error {
	for _, dir := range []string{"/etc/containerd", "/etc/cni/net.d", "/etc/kubernetes", kubeletState} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	cni, err := json.Marshal(podNetwork(pods))
	if err != nil {
		return err
	}
	settings, err := kubeletConfiguration()
	if err != nil {
		return err
	}
	token, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return fmt.Errorf("reading the join token: %w", err)
	}
	k := clientcmdapi.NewConfig()
	k.Clusters["lab"] = &clientcmdapi.Cluster{Server: c.Server, CertificateAuthority: apiCertificate}
	k.AuthInfos["join"] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(string(token))}
	k.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "join"}
	k.CurrentContext = "lab"
	return errors.Join(
		os.WriteFile("/etc/containerd/config.toml", []byte(runtimeConfig), 0o600),
		os.WriteFile("/etc/cni/net.d/10-lab.conflist", cni, 0o600),
		os.WriteFile(kubeletConfig, settings, 0o600),
		clientcmd.WriteToFile(*k, bootstrap))
}

// admitted asks the server whether it takes the join token, as K3s does before anything
// else, and returns how to reach it. A kubelet finds out about a wrong one more than a
// minute later.
func admitted(ctx context.Context) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", bootstrap)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", bootstrap, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := client.Discovery().RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return nil, fmt.Errorf("asking the server at %s whether this machine may join: %w", config.Host, err)
	}
	return config, nil
}

// certify gets the kubelet its serving certificate. Until the server takes the password of
// the node's name it waits, as K3s does, and does not start a kubelet.
func certify(ctx context.Context, config *rest.Config, name, address string) error {
	trusting := rest.AnonymousClientConfig(config) // the supervisor takes the token in its own way
	trusting.Timeout = 20 * time.Second
	client, err := rest.HTTPClientFor(trusting)
	if err != nil {
		return err
	}
	asking := supervisor.Agent{Server: config.Host, Client: client, Token: config.BearerToken, Name: name, Address: address,
		Password: nodePassword, Log: os.Stderr}
	got, err := asking.Ask(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		os.MkdirAll(filepath.Dir(servingCertificate), 0o700),
		os.WriteFile(servingCertificate, got.Certificate, 0o600),
		os.WriteFile(servingKey, got.Key, 0o600))
}

// startRuntime starts containerd, unless one runs, and imports the machine's images.
func startRuntime(ctx context.Context) error {
	if exec.CommandContext(ctx, "ctr", "version").Run() != nil {
		logs, err := os.OpenFile("/var/log/containerd.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		cmd := exec.Command("containerd") //nolint:noctx // it runs on when this process has become a kubelet
		cmd.Stdout, cmd.Stderr = logs, logs
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("starting containerd: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for exec.CommandContext(ctx, "ctr", "version").Run() != nil {
		select {
		case <-ctx.Done():
			return errors.New("containerd does not answer, see /var/log/containerd.log")
		case <-time.After(20 * time.Millisecond):
		}
	}
	archives, err := filepath.Glob(filepath.Join(machine.Images, "*.tar"))
	if err != nil {
		return err
	}
	for _, a := range archives {
		if out, err := exec.CommandContext(ctx, "ctr", "-n", "k8s.io", "images", "import", a).CombinedOutput(); err != nil {
			return fmt.Errorf("importing %s: %w: %s", a, err, out)
		}
	}
	return nil
}
