package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/muster-dev/muster/partition/servertest/natstest"
)

func TestWrongAccessIsToldTogether(t *testing.T) {
	t.Setenv("NATS_CREDS", "/nowhere/a.creds")
	t.Setenv("NATS_CA", "/nowhere/ca.pem")
	t.Setenv("NATS_PASSWORD", "secret")
	t.Setenv("NATS_KEY", "/nowhere/key.pem")
	_, err := Connect("nats://127.0.0.1:1", "test")
	if err == nil {
		t.Fatal("connected")
	}
	for _, want := range []string{"NATS_CREDS", "/nowhere/a.creds", "NATS_CA", "NATS_PASSWORD", "NATS_USER", "NATS_CERT and NATS_KEY"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the password is told: %v", err)
	}
}

// TestConnectionsAreEncryptedAndKnown connects to a server that wants TLS and a password.
func TestConnectionsAreEncryptedAndKnown(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	s := natstest.Start(t, natstest.NoJetStream, func(o *server.Options) {
		o.Username, o.Password, o.TLSTimeout = "fdc", "s3", 5
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}
	})
	url := strings.Replace(s.URL(), "nats://", "tls://", 1)
	if nc, err := Connect(url, "nobody"); err == nil || !strings.Contains(err.Error(), "certificate") {
		nc.Close()
		t.Errorf("a server with an unknown CA: %v", err)
	}
	t.Setenv("NATS_CA", ca)
	if nc, err := Connect(url, "nobody"); err == nil || !strings.Contains(err.Error(), "Authorization") {
		nc.Close()
		t.Errorf("without a password: %v", err)
	}
	t.Setenv("NATS_USER", "fdc")
	t.Setenv("NATS_PASSWORD", "s3")
	nc, err := Connect(url, "known")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if state, err := nc.TLSConnectionState(); err != nil || state.Version < tls.VersionTLS12 {
		t.Errorf("not encrypted: %v, %v", state.Version, err)
	}
}
