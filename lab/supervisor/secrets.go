package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// secretType is that of the secrets which hold nodes' passwords.
const secretType corev1.SecretType = "k3s.cattle.io/node-password"

// orphanAge is how long a password is kept whose node has not registered. A machine shows
// its password before its container runtime starts.
const orphanAge = 10 * time.Minute

const secretSuffix = ".node-password.k3s"

// passwords are the nodes' passwords, one secret per name.
type passwords struct{ client kubernetes.Interface }

// ensure compares a node's password with the one that its name came with first, and keeps
// it if there was none. The error is errWrongPassword if they differ.
func (p passwords) ensure(ctx context.Context, node, password string) error {
	err := p.compare(ctx, node, password)
	if !apierrors.IsNotFound(err) {
		return err
	}
	hash, err := hashed(password)
	if err != nil {
		return err
	}
	fixed := true
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(node + secretSuffix), Namespace: metav1.NamespaceSystem},
		Type:       secretType, Immutable: &fixed, Data: map[string][]byte{"hash": []byte(hash)},
	}
	_, err = p.client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // of two machines with one name the other was first
		return p.compare(ctx, node, password)
	}
	return err
}

func (p passwords) compare(ctx context.Context, node, password string) error {
	secret, err := p.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, strings.ToLower(node+secretSuffix), metav1.GetOptions{})
	if err != nil {
		return err
	}
	return verify(string(secret.Data["hash"]), password)
}

// tend gives each password to its node, so that the garbage collector removes it with the
// node, and removes those whose nodes never registered. K3s' server does the same.
func (p passwords) tend(ctx context.Context, now time.Time) error {
	secrets := p.client.CoreV1().Secrets(metav1.NamespaceSystem)
	list, err := secrets.List(ctx, metav1.ListOptions{FieldSelector: "type=" + string(secretType)})
	if err != nil {
		return fmt.Errorf("listing the nodes' passwords: %w", err)
	}
	var errs []error
	for _, s := range list.Items {
		if len(s.OwnerReferences) > 0 {
			continue
		}
		node, err := p.client.CoreV1().Nodes().Get(ctx, strings.TrimSuffix(s.Name, secretSuffix), metav1.GetOptions{})
		switch {
		case err == nil:
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
			_, err = secrets.Update(ctx, &s, metav1.UpdateOptions{})
			errs = append(errs, err)
		case !apierrors.IsNotFound(err):
			errs = append(errs, err)
		case now.Sub(s.CreationTimestamp.Time) > orphanAge:
			errs = append(errs, secrets.Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}}))
		}
	}
	return errors.Join(errs...)
}
