package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// authority signs the certificates of kubelets that join with a bootstrap token.
type authority struct {
	certificate string // path
	key         string // path
}

// joiners is the group of everything that presents a bootstrap token of the lab.
const joiners = "system:bootstrappers:lab"

// newAuthority makes a certificate authority that is valid for a day, at the two paths.
func newAuthority(certificate, key string) (authority, error) {
	a := authority{certificate: certificate, key: key}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, err
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "lab"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, private.Public(), private)
	if err != nil {
		return a, err
	}
	plain, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return a, err
	}
	return a, errors.Join(
		os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o644),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: plain}), 0o600))
}

// issue returns a certificate for a server of a name, good for a day.
func (a authority) issue(name string) (*tls.Certificate, error) {
	if name == "" {
		return nil, errors.New("the client names no server")
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	signed, err := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}}, private.Public())
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: private}, nil
}

// sign signs a certificate for a server, good for a day, whose names and addresses the
// template has.
func (a authority) sign(template *x509.Certificate, public any) ([]byte, error) {
	signer, err := tls.LoadX509KeyPair(a.certificate, a.key)
	if err != nil {
		return nil, err
	}
	parent, err := x509.ParseCertificate(signer.Certificate[0])
	if err != nil {
		return nil, err
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = parent.NotBefore, parent.NotAfter
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return x509.CreateCertificate(rand.Reader, template, parent, public, signer.PrivateKey)
}

// joinToken is what a machine joins the cluster with, as `k3s token create` makes them.
type joinToken struct{ id, secret string }

func newJoinToken() joinToken { return joinToken{id: letters(6), secret: letters(16)} }

func (t joinToken) String() string { return t.id + "." + t.secret }

// letters returns n random letters, of which a bootstrap token may consist.
func letters(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = 'a' + b[i]%26
	}
	return string(b)
}

// admit makes the token valid. What presents it may ask for a node's certificate, gets it
// without a person, and may do nothing else.
func (t joinToken) admit(ctx context.Context, client kubernetes.Interface) error {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + t.id}, Type: corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": t.id, "token-secret": t.secret, "usage-bootstrap-authentication": "true", "auth-extra-groups": joiners},
	}
	if _, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the join token: %w", err)
	}
	for _, role := range []string{"system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:nodeclient"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "lab:" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: joiners}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("allowing joining machines the role %s: %w", role, err)
		}
	}
	return nil
}
