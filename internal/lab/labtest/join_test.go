package labtest_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
)

// TestJoining plays the bootstrap of a kubelet: the token gets it a certificate, the
// certificate lets it register itself, and neither lets it do anything else.
func TestJoining(t *testing.T) {
	l := labtest.Start(t, lab.Options{})
	admin, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a wrong token is turned away", func(t *testing.T) {
		_, _, err := request(t.Context(), client(t, admin, joining(l.JoinToken+"x")), "i-1")
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v", err)
		}
	})

	joins := client(t, admin, joining(l.JoinToken))
	t.Run("the token reads no secrets", func(t *testing.T) {
		_, err := joins.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})

	kubelet := client(t, admin, certified(signed(t, joins, "i-1")))
	if _, err := kubelet.CoreV1().Nodes().Create(t.Context(), node("i-1"), metav1.CreateOptions{}); err != nil {
		t.Fatalf("a kubelet with a certificate can't register its node: %v", err)
	}
	if _, err := client(t, admin, nil).CoreV1().Nodes().Create(t.Context(), node("i-2"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	t.Run("a kubelet changes its own node only", func(t *testing.T) {
		label := []byte(`{"metadata":{"labels":{"zone":"a"}}}`)
		_, err := kubelet.CoreV1().Nodes().Patch(t.Context(), "i-1", types.MergePatchType, label, metav1.PatchOptions{})
		if err != nil {
			t.Errorf("of its own: %v", err)
		}
		_, err = kubelet.CoreV1().Nodes().Patch(t.Context(), "i-2", types.MergePatchType, label, metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("of another: got %v", err)
		}
	})

	t.Run("a kubelet gives itself no role", func(t *testing.T) {
		label := []byte(`{"metadata":{"labels":{"node-restriction.kubernetes.io/role":"server"}}}`)
		_, err := kubelet.CoreV1().Nodes().Patch(t.Context(), "i-1", types.MergePatchType, label, metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) {
			t.Errorf("got %v", err)
		}
	})
}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
}

// joining makes of an administrator's configuration that of a machine with a token.
func joining(token string) func(*rest.Config) { return func(c *rest.Config) { c.BearerToken = token } }

// certified makes of it that of a kubelet with a certificate.
func certified(certificate, key []byte) func(*rest.Config) {
	return func(c *rest.Config) {
		c.BearerToken, c.CertData, c.KeyData = "", certificate, key
	}
}

func client(t *testing.T, admin *rest.Config, change func(*rest.Config)) *kubernetes.Clientset {
	t.Helper()
	c := rest.CopyConfig(admin)
	if change != nil {
		change(c)
	}
	set, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// request asks for the certificate of a node and returns the request's name, and the key.
func request(ctx context.Context, c *kubernetes.Clientset, node string) (name string, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", nil, err
	}
	template := x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}}
	asked, err := x509.CreateCertificateRequest(rand.Reader, &template, private)
	if err != nil {
		return "", nil, err
	}
	plain, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return "", nil, err
	}
	csr := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked}), SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
	}}
	created, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
	if err != nil {
		return "", nil, err
	}
	return created.Name, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: plain}), nil
}

// signed gets a node its certificate, which nobody has to approve.
func signed(t *testing.T, c *kubernetes.Clientset, node string) (certificate, key []byte) {
	t.Helper()
	name, key, err := request(t.Context(), c, node)
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the certificate of "+node, func() error {
		csr, err := c.CertificatesV1().CertificateSigningRequests().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if certificate = csr.Status.Certificate; len(certificate) == 0 {
			return errors.New("it is not signed")
		}
		return nil
	})
	return certificate, key
}
