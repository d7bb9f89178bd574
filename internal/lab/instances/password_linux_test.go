package instances_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/console"
)

// retired is the node name of a machine that was there before.
const retired = "retired"

// passwords are what K3s' server knows of the nodes' names.
type passwords struct {
	admin *rest.Config
	token string
	kube  *kubernetes.Clientset
}

// register asks for a node's certificate as its machine does, so that the server knows the
// name by another password than that of any machine to come.
func (p passwords) register(ctx context.Context, node string) error {
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(p.admin))
	if err != nil {
		return err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	wanted, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.admin.Host+"/v1-k3s/serving-kubelet.crt", bytes.NewReader(wanted))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	r.Header.Set("k3s-Node-Name", node)
	r.Header.Set("k3s-Node-Password", "of "+node)
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("registering node %s: %w", node, err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("registering node %s: %s", node, answer.Status)
	}
	return nil
}

// mismatch says for which node the passwords that are kept are not those of the nodes that
// are there. K3s keeps a name without a node for ten minutes, in case that it joins.
func (p passwords) mismatch(ctx context.Context) error {
	const suffix = ".node-password.k3s"
	secrets, err := p.kube.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "type=k3s.cattle.io/node-password"})
	if err != nil {
		return err
	}
	owned := map[string]bool{}
	for _, s := range secrets.Items {
		if len(s.OwnerReferences) > 0 {
			owned[strings.TrimSuffix(s.Name, suffix)] = true
		}
	}
	list, err := p.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "!node-role.kubernetes.io/control-plane"})
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range list.Items {
		if !owned[n.Name] {
			errs = append(errs, fmt.Errorf("node %s has no password", n.Name))
		}
		delete(owned, n.Name)
	}
	for name := range owned {
		errs = append(errs, fmt.Errorf("the password of node %s is left, and the node is gone", name))
	}
	return errors.Join(errs...)
}

// passwordsLeft checks that the password of a removed node went with it.
func (r *faultRig) passwordsLeft(t *testing.T) {
	t.Helper()
	r.tick(t, "passwords of nodes", func(string, console.NodePlane) error { return r.server.mismatch(t.Context()) })
}
