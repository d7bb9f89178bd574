package access

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// keepContexts writes files as the nats command does, and has the process find them.
func keepContexts(t *testing.T, files map[string]string) {
	t.Helper()
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	for _, name := range []string{varUser, varPassword, varCreds, varNkey, varInboxPrefix, varCA, varCert, varKey} {
		t.Setenv(name, "")
	}
	dir := filepath.Join(config, "nats", "context")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContext(t *testing.T) {
	s := natstest.Start(t, natstest.NoJetStream, func(o *server.Options) {
		o.Users = []*server.User{{Username: "fdc", Password: "s3"}, {Username: "olga", Password: "s4"}}
	})
	// As `nats context add` writes it: with every field, and most of them empty.
	keepContexts(t, map[string]string{
		"fab": `{"description": "fab 2", "url": "` + s.URL() + `", "socks_proxy": "", "token": "", "user": "fdc", "password": "s3", "creds": "", "nkey": "",
			"cert": "", "key": "", "ca": "", "nsc": "", "jetstream_domain": "", "jetstream_api_prefix": "", "jetstream_event_prefix": "", "inbox_prefix": "",
			"user_jwt": "", "color_scheme": "yellow", "tls_first": false}`,
		"no-password": `{"url": "` + s.URL() + `", "user": "fdc"}`,
	})
	userOf := func(t *testing.T, context string) string {
		t.Helper()
		nc, err := Connect(ContextURL(context), "test")
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		answer, err := nc.Request("$SYS.REQ.USER.INFO", nil, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		var info struct{ Data struct{ User string } }
		if err := json.Unmarshal(answer.Data, &info); err != nil {
			t.Fatal(err)
		}
		return info.Data.User
	}

	t.Run("servers and user are the context's", func(t *testing.T) {
		if user := userOf(t, "fab"); user != "fdc" {
			t.Errorf("connected as %q", user)
		}
	})
	t.Run("a user of the environment comes first", func(t *testing.T) {
		t.Setenv(varUser, "olga")
		t.Setenv(varPassword, "s4")
		if user := userOf(t, "fab"); user != "olga" {
			t.Errorf("connected as %q", user)
		}
	})
	t.Run("the password may be the environment's alone", func(t *testing.T) {
		t.Setenv(varPassword, "s3")
		if user := userOf(t, "no-password"); user != "fdc" {
			t.Errorf("connected as %q", user)
		}
	})
}

// TestContextToken: some servers know no users but a token, which no variable names.
func TestContextToken(t *testing.T) {
	s := natstest.Start(t, natstest.NoJetStream, func(o *server.Options) { o.Authorization = "t0ken" })
	keepContexts(t, map[string]string{"with": `{"url": "` + s.URL() + `", "token": "t0ken"}`, "without": `{"url": "` + s.URL() + `"}`})
	if nc, err := Connect(ContextURL("without"), "test"); err == nil {
		nc.Close()
		t.Error("the server asks for no token")
	}
	nc, err := Connect(ContextURL("with"), "test")
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestContextRejected(t *testing.T) {
	keepContexts(t, map[string]string{
		"domain": `{"url": "nats://127.0.0.1:1", "jetstream_domain": "hub"}`,
		"broken": `{"url": `,
		"files":  `{"url": "nats://127.0.0.1:1", "creds": "/nowhere/a.creds", "password": "secret"}`,
	})
	for context, want := range map[string]string{
		"fab":       `there are broken, domain, files`,
		"domain":    `unknown field "jetstream_domain": Muster doesn't follow it`,
		"broken":    "nats context edit",
		"files":     "NATS_CREDS: stat /nowhere/a.creds",
		"../domain": "that is no name",
		"":          "that is no name",
	} {
		t.Run(context, func(t *testing.T) {
			nc, err := Connect(ContextURL(context), "test")
			if err == nil {
				nc.Close()
				t.Fatal("connected")
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v: want %q in it", err, want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is told: %v", err)
			}
		})
	}
}
