package labtest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
)

// cluster is a lab with real nodes, and a client that may do everything.
type cluster struct {
	*lab.Lab
	client *kubernetes.Clientset
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	return startClusterOf(t, lab.Options{RealNodes: true})
}

func startClusterOf(t *testing.T, o lab.Options) *cluster {
	t.Helper()
	l := labtest.Start(t, o)
	admin, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{l, client(t, admin, nil)}
}

// userData joins a machine, as a user who wrote no more than needed would.
func (c *cluster) userData(id, token string) string {
	return fmt.Sprintf(`set -e
mkdir -p /etc/rancher/k3s/config.yaml.d
echo %[2]s >/etc/rancher/k3s/token
cat >/etc/rancher/k3s/config.yaml.d/50-test.yaml <<END
server: %[3]s
token-file: /etc/rancher/k3s/token
node-name: %[1]s
END
INSTALL_K3S_EXEC=agent sh /usr/local/bin/k3s-install.sh
echo "joining as %[1]s"
`, id, token, c.Server)
}

const memory = 2 << 30 // of the tests' machines, bytes

func (c *cluster) boot(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if _, err := c.Boot(t.Context(), lab.Machine{ID: id, Memory: memory, UserData: c.userData(id, c.JoinToken)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		c.becomes(t, id, corev1.ConditionTrue)
	}
}

// becomes waits until a node's Ready condition has a status.
func (c *cluster) becomes(t *testing.T, id string, want corev1.ConditionStatus) {
	t.Helper()
	labtest.Eventually(t, "node "+id+" becoming Ready="+string(want), func() error {
		n, err := c.client.CoreV1().Nodes().Get(t.Context(), id, metav1.GetOptions{})
		if err != nil {
			return c.explained(t, id, err)
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == want {
				return nil
			}
		}
		return c.explained(t, id, errors.New("it is not"))
	})
}

// explained adds what a machine has written to its console.
func (c *cluster) explained(t *testing.T, id string, err error) error {
	s, _ := c.Inspect(t.Context(), id)
	return fmt.Errorf("%w; its console: %s", err, s.Console)
}

// run creates a pod on a node, of our image, and waits until it runs.
func (c *cluster) run(t *testing.T, name, node string, linger time.Duration) {
	t.Helper()
	grace := int64(20)
	labtest.Create(t, c.client.CoreV1().Pods("default").Create, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "pod", Image: lab.PodImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/pod", "serve", linger.String()}}},
		},
	})
	labtest.Eventually(t, "pod "+name, func() error {
		p, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = fmt.Errorf("it is %s: %+v", p.Status.Phase, p.Status.ContainerStatuses)
		}
		return err
	})
}

// follow returns everything that a pod writes, once it has ended.
func (c *cluster) follow(t *testing.T, name string) <-chan string {
	t.Helper()
	stream, err := c.client.CoreV1().Pods("default").GetLogs(name, &corev1.PodLogOptions{Follow: true}).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string, 1)
	go func() {
		defer stream.Close()
		var all bytes.Buffer
		_, err := all.ReadFrom(stream)
		if err != nil {
			all.WriteString(err.Error())
		}
		out <- all.String()
	}()
	return out
}

func (c *cluster) evict(t *testing.T, name string) {
	t.Helper()
	err := c.client.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the end of pod "+name, func() error {
		_, err := c.client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
}

// kubelet returns the process of a machine's kubelet, 0 if there is none.
func (c *cluster) kubelet(t *testing.T, id string) int {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		cgroup, _ := os.ReadFile(filepath.Join(p, "cgroup")) // it may have ended
		args, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		ofMachine := strings.Contains(string(cgroup), "muster-machines-"+strconv.Itoa(c.PID())+"-") && strings.Contains(string(cgroup), "/"+id)
		if ofMachine && strings.HasPrefix(string(args), "lab\x00kubelet\x00") {
			pid, err := strconv.Atoi(filepath.Base(p))
			if err != nil {
				t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

// TestRealNodes boots two machines, whose kubelets join and run a pod each, on every version of Kubernetes that there is a lab of.
func TestRealNodes(t *testing.T) {
	for _, r := range lab.Releases() {
		t.Run(r.Minor, func(t *testing.T) { testRealNodes(t, r) })
	}
}

func testRealNodes(t *testing.T, r lab.Release) {
	before := look(t)
	c := startClusterOf(t, lab.Options{Kubernetes: r.Minor, RealNodes: true})
	c.boot(t, "i-1", "i-2")
	found := tracesOf(t, c.PID())
	for _, kind := range []string{"process", "namespace", "cgroup", "folder"} {
		if len(found[kind]) == 0 {
			t.Errorf("no %s of running machines is seen, so none would be seen that is left", kind)
		}
	}
	if n := len(found["mount"]); n > 0 {
		t.Errorf("%d mounts of machines are visible outside of them", n)
	}

	t.Run("a node is of the version that was asked for", func(t *testing.T) {
		n, err := c.client.CoreV1().Nodes().Get(t.Context(), "i-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if i := n.Status.NodeInfo; i.KubeletVersion != r.Version || !strings.HasPrefix(strings.TrimPrefix(i.ContainerRuntimeVersion, "containerd://"), r.Containerd) {
			t.Errorf("kubelet %s, runtime %s, want %s and containerd %s", i.KubeletVersion, i.ContainerRuntimeVersion, r.Version, r.Containerd)
		}
	})

	t.Run("a node has the memory of its machine", func(t *testing.T) {
		n, err := c.client.CoreV1().Nodes().Get(t.Context(), "i-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Status.Capacity.Memory().Value(); got != memory {
			t.Errorf("got %d bytes, want %d", got, memory)
		}
	})

	t.Run("an evicted pod gets SIGTERM and the time to end", func(t *testing.T) {
		c.run(t, "worker", "i-1", time.Second)
		logs := c.follow(t, "worker")
		c.evict(t, "worker")
		if got := <-logs; got != "up\nSIGTERM\ndone\n" {
			t.Errorf("it wrote %q", got)
		}
	})

	t.Run("a killed kubelet comes back, and its pods stay", func(t *testing.T) {
		c.run(t, "survivor", "i-1", 0)
		killed := c.kubelet(t, "i-1")
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, "another kubelet", func() error {
			if now := c.kubelet(t, "i-1"); now == 0 || now == killed {
				return c.explained(t, "i-1", errors.New("there is none"))
			}
			return nil
		})
		c.becomes(t, "i-1", corev1.ConditionTrue)
		p, err := c.client.CoreV1().Pods("default").Get(t.Context(), "survivor", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Status.ContainerStatuses; len(s) != 1 || s[0].RestartCount != 0 || s[0].State.Running == nil {
			t.Errorf("its container has not stayed: %+v", s)
		}
	})

	t.Run("a machine whose boot hangs is up and no node", func(t *testing.T) {
		hangs := lab.Machine{ID: "i-3", Memory: memory, UserData: "echo begun\nsleep infinity\necho over\n"}
		if _, err := c.Boot(t.Context(), hangs); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, "the begin of its user data", func() error {
			s, err := c.Inspect(t.Context(), "i-3")
			if err == nil && (!s.Running || !strings.Contains(s.Console, "begun")) {
				err = fmt.Errorf("running: %v, console: %s", s.Running, s.Console)
			}
			return err
		})
		if err := c.CutPower(t.Context(), "i-3"); err != nil {
			t.Fatal(err)
		}
		s, err := c.Inspect(t.Context(), "i-3")
		if err != nil {
			t.Fatal(err)
		}
		if s.Running || strings.Contains(s.Console, "over") {
			t.Errorf("without power: running: %v, console: %s", s.Running, s.Console)
		}
		if _, err := c.client.CoreV1().Nodes().Get(t.Context(), "i-3", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("its node: %v", err)
		}
	})

	t.Run("a machine that disappears leaves a silent node", func(t *testing.T) {
		c.run(t, "stays", "i-2", 0)
		if err := c.CutPower(t.Context(), "i-2"); err != nil {
			t.Fatal(err)
		}
		c.becomes(t, "i-2", corev1.ConditionUnknown)
	})

	c.Stop()
	before.unchanged(t, c.PID())
}

// TestRealNodes_killed kills what started the machines.
func TestRealNodes_killed(t *testing.T) {
	before := look(t)
	c := startCluster(t)
	c.boot(t, "i-1")
	c.Kill()
	c.Stop()
	before.unchanged(t, c.PID())
}
