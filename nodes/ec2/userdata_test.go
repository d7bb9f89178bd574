package ec2_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes/ec2"
)

// boot runs the user data on this machine, as far as that goes: its metadata service, the AWS services and the K3s installer are
// stand-ins, and /etc/rancher/k3s is a temporary directory.
type boot struct {
	etc    string
	output string
	err    error
}

func (b boot) file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(b.etc, name))
	if err != nil {
		t.Fatalf("%v; the boot said:\n%s", err, b.output)
	}
	return string(data)
}

const agentToken = "K10d7a1c0ffee::node:s3cr3t/+="

func bootWith(t *testing.T, j ec2.Join, tools map[string]string) boot {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin") // all that the machine has; this one may have the AWS command
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"bash", "sh", "cat", "curl", "env", "grep", "head", "mkdir", "sed", "sleep", "sort", "tail"} {
		path, err := exec.LookPath(tool)
		if err == nil {
			err = os.Symlink(path, filepath.Join(bin, tool))
		}
		if err != nil {
			if os.Getenv("MUSTER_REQUIRE") == "all" {
				t.Fatalf("the user data can't be run: %v", err)
			}
			t.Skipf("the user data can't be run: %v", err)
		}
	}
	r := open(t, func(s *setup) {
		s.api.Parameters = map[string]string{"/muster/prod/agent-token": agentToken}
		s.api.Secrets = map[string]string{"muster/agent-token": agentToken}
	})
	imds := httptest.NewServer(metadata())
	t.Cleanup(imds.Close)
	script, err := ec2.UserData(j)
	if err != nil {
		t.Fatal(err)
	}
	b := boot{etc: filepath.Join(dir, "etc")}
	tools["k3s-install.sh"] = "#!/bin/sh\nenv | grep ^INSTALL_ | sort > " + dir + "/etc/installed\n"
	for name, text := range tools {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil { //nolint:gosec // it is to be run
			t.Fatal(err)
		}
	}
	for old, stand := range map[string]string{
		"http://169.254.169.254": imds.URL, "/etc/rancher/k3s": b.etc, "/usr/local/bin/k3s-install.sh": bin + "/k3s-install.sh",
		`"https://$token_service.$region.$(meta services/domain)/"`: r.url + "/", "1 2 4 8 16 0": "0 0",
		"/dev/console": dir + "/console", "10 10 20 20 30 30 60 60 60 60 60 60 60 60": "0", "/run/systemd/system": dir + "/no-systemd",
		"/var/log/k3s-agent.log": bin + "/agent.log", "http://127.0.0.1:10248": "http://127.0.0.1:1",
	} {
		if !strings.Contains(script, old) {
			t.Fatalf("the script does not contain %s", old)
		}
		script = strings.ReplaceAll(script, old, stand)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "bash"))
	cmd.Stdin = strings.NewReader(script)
	cmd.Env = []string{"PATH=" + bin, "HOME=" + dir}
	out, err := cmd.CombinedOutput()
	b.output, b.err = string(out), err
	return b
}

// metadata is the instance metadata service, version 2 only.
func metadata() http.Handler {
	values := map[string]string{
		"instance-id": "i-0b662ef9931388ba0", "placement/availability-zone": "eu-central-1b", "placement/region": "eu-central-1",
		"instance-type": "m5.large", "iam/security-credentials/": "muster-node", "services/domain": "amazonaws.com",
		"iam/security-credentials/muster-node": "{\n  \"Code\" : \"Success\",\n  \"AccessKeyId\" : \"ASIATEST\",\n  \"SecretAccessKey\" : \"se/cr+et=\",\n  \"Token\" : \"tok/en==\"\n}",
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" {
			_, _ = io.WriteString(w, "session")
			return
		}
		v, ok := values[strings.TrimPrefix(r.URL.Path, "/latest/meta-data/")]
		switch {
		case r.Header.Get("X-Aws-Ec2-Metadata-Token") != "session":
			w.WriteHeader(http.StatusUnauthorized)
		case !ok:
			w.WriteHeader(http.StatusNotFound)
		default:
			_, _ = io.WriteString(w, v)
		}
	})
}

func TestANodeBootsIntoItsClusterByItsInstanceID(t *testing.T) {
	j := ec2.Join{Server: "https://10.0.0.10:6443", TokenRef: "ssm:/muster/prod/agent-token", Version: "v1.36.3+k3s1", Args: "--node-taint spot=true:NoSchedule"}
	for name, c := range map[string]struct {
		ref   string
		tools map[string]string
	}{
		"SSM by curl":             {"ssm:/muster/prod/agent-token", map[string]string{}},
		"Secrets Manager by curl": {"secretsmanager:muster/agent-token", map[string]string{}},
		"SSM by the AWS command": {"ssm:/muster/prod/agent-token", map[string]string{
			"aws": "#!/bin/sh\n[ \"$*\" = \"--region eu-central-1 --output text --query Parameter.Value ssm get-parameter --with-decryption --name /muster/prod/agent-token\" ] && echo '" + agentToken + "'\n",
		}},
		"Secrets Manager by the AWS command": {"secretsmanager:muster/agent-token", map[string]string{
			"aws": "#!/bin/sh\n[ \"$*\" = \"--region eu-central-1 --output text --query SecretString secretsmanager get-secret-value --secret-id muster/agent-token\" ] && echo '" + agentToken + "'\n",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			j := j
			j.TokenRef = c.ref
			b := bootWith(t, j, c.tools)
			if b.err != nil {
				t.Fatalf("%v\n%s", b.err, b.output)
			}
			if got := b.file(t, "muster-token"); got != agentToken {
				t.Errorf("the token is %q", got)
			}
			if info, err := os.Stat(filepath.Join(b.etc, "muster-token")); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the token's mode is %v, %v", info.Mode(), err)
			}
			if got, want := b.file(t, "config.yaml.d/50-muster.yaml"), strings.ReplaceAll(`server: https://10.0.0.10:6443
token-file: ETC/muster-token
node-name: i-0b662ef9931388ba0
kubelet-arg+:
  - provider-id=aws:///eu-central-1b/i-0b662ef9931388ba0
node-label+:
  - topology.kubernetes.io/zone=eu-central-1b
  - topology.kubernetes.io/region=eu-central-1
  - node.kubernetes.io/instance-type=m5.large
`, "ETC", b.etc); got != want {
				t.Errorf("the configuration is\n%s\nwant\n%s", got, want)
			}
			if got, want := b.file(t, "installed"), "INSTALL_K3S_EXEC=agent --node-taint spot=true:NoSchedule\nINSTALL_K3S_VERSION=v1.36.3+k3s1\n"; got != want {
				t.Errorf("installed with\n%s", got)
			}
			if strings.Contains(b.output, "s3cr3t") || strings.Contains(b.output, "se/cr+et") {
				t.Errorf("the boot tells a secret:\n%s", b.output)
			}
		})
	}
}

func TestAnImageThatBringsK3sIsNotGivenAnother(t *testing.T) {
	b := bootWith(t, config().Join, map[string]string{"k3s": "#!/bin/sh\n"})
	if got, want := b.file(t, "installed"), "INSTALL_K3S_EXEC=agent \nINSTALL_K3S_SKIP_DOWNLOAD=true\n"; b.err != nil || got != want {
		t.Errorf("installed with\n%s\n%v", got, b.err)
	}
}

func TestABootWithoutItsTokenSaysWhyAndJoinsNothing(t *testing.T) {
	j := config().Join
	j.TokenRef = "ssm:/muster/other"
	b := bootWith(t, j, map[string]string{})
	if b.err == nil || !strings.Contains(b.output, "muster: the agent token can't be read: let this machine's role read ssm /muster/other") {
		t.Errorf("%v\n%s", b.err, b.output)
	}
	if _, err := os.Stat(b.etc); err == nil {
		t.Error("it went on")
	}
}

// TestUserData_agent: what the agent says, which is in its log alone, comes to the console without the token.
func TestUserData_agent(t *testing.T) {
	b := bootWith(t, ec2.Join{Server: "https://10.0.0.10:6443", TokenRef: "ssm:/muster/prod/agent-token"}, map[string]string{
		"agent.log": "level=info msg=\"Starting k3s agent\"\nlevel=error msg=\"token " + agentToken + " is not valid: 401 Unauthorized\"\nlevel=info msg=\"Tunnel\"\n"})
	if b.err != nil {
		t.Fatalf("%v: %s", b.err, b.output)
	}
	const want = "muster: i-0b662ef9931388ba0 has not joined yet, its agent says: level=error msg=\"token [redacted] is not valid: 401 Unauthorized\"\n"
	var got []byte
	for range 200 { // it is written in the background
		if got, _ = os.ReadFile(filepath.Join(filepath.Dir(b.etc), "console")); len(got) >= len(want) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if string(got) != want {
		t.Errorf("the console has %q, want %q", got, want)
	}
}

func TestUserDataHoldsNoSecretAndIsAlwaysTheSame(t *testing.T) {
	j := config().Join
	one, err := ec2.UserData(j)
	two, _ := ec2.UserData(j)
	if err != nil || one != two || strings.Contains(one, agentToken) {
		t.Errorf("%v", err)
	}
	if len(one) > 8<<10 {
		t.Errorf("%d bytes", len(one))
	}
	j.Args = "'"
	if _, err := ec2.UserData(j); err == nil {
		t.Error("a quote can end the script's own")
	}
}

// TestNodeLabelsAndTaints/reach_the_node: by K3s' configuration, from the settings to the file that the booted machine has.
func TestNodeLabelsAndTaints(t *testing.T) {
	settings := map[string]string{
		"CLUSTER": "prod", "LAUNCH_TEMPLATE": "lt-1", "LAUNCH_TEMPLATE_VERSION": "1",
		"K3S_URL": "https://10.0.0.10:6443", "K3S_TOKEN_REF": "ssm:/muster/prod/agent-token",
		"NODE_LABELS": "team=a,example.com/pool=batch,empty=", "NODE_TAINTS": "batch=true:NoSchedule,alone:NoExecute",
	}
	read := func(change map[string]string) (ec2.Config, error) {
		return ec2.ConfigFromEnv(func(name string) (string, bool) {
			if v, ok := change[name]; ok {
				return v, true
			}
			v, ok := settings[name]
			return v, ok
		})
	}
	t.Run("reach the node", func(t *testing.T) {
		c, err := read(nil)
		if err != nil {
			t.Fatal(err)
		}
		j, err := ec2.ParseJoin(c.Template().UserDataRef) // what the record keeps of it
		if err != nil {
			t.Fatal(err)
		}
		b := bootWith(t, j, map[string]string{})
		if b.err != nil {
			t.Fatalf("%v\n%s", b.err, b.output)
		}
		want := `  - node.kubernetes.io/instance-type=m5.large
  - empty=
  - example.com/pool=batch
  - team=a
node-taint+:
  - alone:NoExecute
  - batch=true:NoSchedule
`
		if got := b.file(t, "config.yaml.d/50-muster.yaml"); !strings.HasSuffix(got, want) {
			t.Errorf("the configuration is\n%s", got)
		}
	})
	t.Run("are another template", func(t *testing.T) {
		one, _ := read(nil)
		two, err := read(map[string]string{"NODE_LABELS": "team=b"})
		if err != nil || one.Template() == two.Template() {
			t.Errorf("%v", err)
		}
	})
	for name, c := range map[string]struct {
		change map[string]string
		want   string // in the error; "": none
	}{
		"a role, which a kubelet may not give itself": {map[string]string{"NODE_LABELS": "node-role.kubernetes.io/worker=true"}, "NODE_LABELS"},
		"a label of k8s.io":                           {map[string]string{"NODE_LABELS": "x.k8s.io/y=z"}, "NODE_LABELS"},
		"the zone, which the instance says":           {map[string]string{"NODE_LABELS": "topology.kubernetes.io/zone=x"}, "NODE_LABELS"},
		"one that a kubelet may have":                 {map[string]string{"NODE_LABELS": "node.kubernetes.io/pool=x"}, ""},
		"labels in the arguments too":                 {map[string]string{"K3S_AGENT_ARGS": "--node-label x=y"}, "K3S_AGENT_ARGS"},
		"taints in the arguments too":                 {map[string]string{"K3S_AGENT_ARGS": "--node-taint=x=y:NoSchedule"}, "K3S_AGENT_ARGS"},
		"arguments alone":                             {map[string]string{"K3S_AGENT_ARGS": "--node-label x=y", "NODE_LABELS": "", "NODE_TAINTS": ""}, ""},
		"user data of one's own":                      {map[string]string{"USER_DATA": "template", "NODE_LABELS": "node-role.kubernetes.io/worker=true"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.change)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
