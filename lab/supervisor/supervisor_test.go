package supervisor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const token = "abcdef.0123456789abcdef"

// rig is a supervisor beside an API that answers "the API".
type rig struct {
	kube   *fake.Clientset
	server *httptest.Server
}

func newRig(t *testing.T) *rig {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(template *x509.Certificate, public any) ([]byte, error) {
		template.SerialNumber = big.NewInt(1)
		return x509.CreateCertificate(rand.Reader, template, template, public, private)
	}
	r := &rig{kube: fake.NewClientset()}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the API")) })
	r.server = httptest.NewTLSServer(New(token, r.kube, sign).Beside(api))
	t.Cleanup(r.server.Close)
	return r
}

// agent is a machine whose node has a name; its password is made in a folder of its own.
func (r *rig) agent(t *testing.T, name string) Agent {
	t.Helper()
	return Agent{Server: r.server.URL, Client: r.server.Client(), Token: token, Name: name, Address: "10.77.0.11",
		Password: filepath.Join(t.TempDir(), "node", "password"), Log: t.Output()}
}

func (r *rig) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s, err := r.kube.CoreV1().Secrets("kube-system").Get(t.Context(), name+".node-password.k3s", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestServer_certificate(t *testing.T) {
	r := newRig(t)
	first := r.agent(t, "Worker-1")
	c, err := first.Ask(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	t.Run("it is of the node and fits the key", func(t *testing.T) {
		pair, err := tls.X509KeyPair(c.Certificate, c.Key)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"worker-1", "localhost", "127.0.0.1", "10.77.0.11"} {
			if err := pair.Leaf.VerifyHostname(name); err != nil {
				t.Error(err)
			}
		}
	})

	t.Run("the password is kept as K3s keeps it", func(t *testing.T) {
		s := r.secret(t, "worker-1")
		if s.Type != "k3s.cattle.io/node-password" || s.Immutable == nil || !*s.Immutable {
			t.Errorf("type %s, immutable %v", s.Type, s.Immutable)
		}
		password, err := os.ReadFile(first.Password)
		if err != nil {
			t.Fatal(err)
		}
		if hash := string(s.Data["hash"]); !strings.HasPrefix(hash, "$1:") || strings.Contains(hash, strings.TrimSpace(string(password))) {
			t.Errorf("the hash is %s", hash)
		}
	})

	t.Run("the same machine may ask again", func(t *testing.T) {
		if _, err := first.ask(t.Context()); err != nil {
			t.Error(err)
		}
	})

	t.Run("another machine of the same name is rejected in K3s' words", func(t *testing.T) {
		other := r.agent(t, "worker-1")
		_, err := other.ask(t.Context())
		want := "Node password rejected, duplicate hostname or contents of '" + other.Password + "' may not match server node-passwd entry, " +
			"try enabling a unique node name with the --with-node-id flag"
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})

	t.Run("a wrong token is rejected, and its password not kept", func(t *testing.T) {
		stranger := r.agent(t, "worker-2")
		stranger.Token += "x"
		if _, err := stranger.ask(t.Context()); err == nil || !strings.Contains(err.Error(), "401") {
			t.Errorf("got %v", err)
		}
		if _, err := r.kube.CoreV1().Secrets("kube-system").Get(t.Context(), "worker-2.node-password.k3s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("reading its secret: %v", err)
		}
	})

	t.Run("the API has the other paths", func(t *testing.T) {
		answer, err := r.server.Client().Get(r.server.URL + "/version")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Error(answer.Status)
		}
	})
}

// log keeps what an agent logs and ends its wait.
type log struct {
	text strings.Builder
	stop context.CancelFunc
}

func (l *log) Write(b []byte) (int, error) {
	l.stop()
	return l.text.Write(b)
}

func TestAgent_waits(t *testing.T) {
	r := newRig(t)
	if _, err := r.agent(t, "worker-1").Ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	other := r.agent(t, "worker-1")
	said := &log{stop: cancel}
	other.Log = said
	if _, err := other.Ask(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if want := `level=info msg="Waiting to retrieve agent configuration; server is not ready: Node password rejected, `; !strings.Contains(said.text.String(), want) {
		t.Errorf("it logs %s", said.text.String())
	}
}

func TestVerify(t *testing.T) {
	hash, err := hashed("right")
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(hash, "right"); err != nil {
		t.Error(err)
	}
	if err := verify(hash, "wrong"); !errors.Is(err, errWrongPassword) {
		t.Errorf("a wrong password: %v", err)
	}
	for _, broken := range []string{"", "right", "$2:00:15:8:1:AAAA", "$1:00:60:8:1:AAAA", "$1:00:15:8:1:!"} {
		if err := verify(broken, "right"); err == nil || errors.Is(err, errWrongPassword) {
			t.Errorf("hash %q: %v", broken, err)
		}
	}
}

func TestPasswords_tend(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"joined", "waiting", "never"} {
		if _, err := r.agent(t, name).Ask(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "joined", UID: "1"}}
	if _, err := r.kube.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for name, age := range map[string]time.Duration{"joined": time.Hour, "waiting": orphanAge - time.Second, "never": orphanAge + time.Second} {
		s := r.secret(t, name)
		s.CreationTimestamp = metav1.NewTime(now.Add(-age))
		if _, err := r.kube.CoreV1().Secrets("kube-system").Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	if err := (passwords{r.kube}).tend(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if owners := r.secret(t, "joined").OwnerReferences; len(owners) != 1 || owners[0].Kind != "Node" || owners[0].UID != "1" {
		t.Errorf("the password of a node belongs to %v", owners)
	}
	if owners := r.secret(t, "waiting").OwnerReferences; len(owners) > 0 {
		t.Errorf("the password of a machine that joins belongs to %v", owners)
	}
	if _, err := r.kube.CoreV1().Secrets("kube-system").Get(t.Context(), "never.node-password.k3s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the password of a node that never registered: %v", err)
	}
}
