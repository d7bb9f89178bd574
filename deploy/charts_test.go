package deploy

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/broker/accounts"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/cassandra"
	"github.com/muster-dev/muster/defender/responder"
	nodescommand "github.com/muster-dev/muster/internal/command/nodes"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/setting"
)

var update = flag.Bool("update", false, "write what is generated of the code again: the settings in the schemas of the charts")

// helm runs Helm.
type helm struct {
	binary string
	env    []string
}

// newHelm returns Helm with settings and caches of its own. With a kubeconfig it talks to that cluster.
func newHelm(t *testing.T, kubeconfig string) helm {
	t.Helper()
	h := helm{binary: filepath.Join(component.Helm().Fetch(t), "helm")}
	home := t.TempDir()
	h.env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_DATA_HOME="+home, "KUBECONFIG="+kubeconfig)
	return h
}

// try runs Helm and returns what it prints, and an error with what it complains of.
func (h helm) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), h.binary, args...)
	cmd.Env = h.env
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}

func (h helm) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.try(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// packaged packages every chart and returns the files by chart.
func (h helm) packaged(t *testing.T) map[string]string {
	t.Helper()
	folders, err := filepath.Glob("charts/*")
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d charts: %v", len(folders), err)
	}

	files := map[string]string{}
	for _, folder := range folders {
		dir := t.TempDir()
		h.run(t, "package", folder, "--destination", dir)
		made, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
		if err != nil || len(made) != 1 {
			t.Fatalf("packaging %s made %d files: %v", folder, len(made), err)
		}
		files[filepath.Base(folder)] = made[0]
	}
	return files
}

// chart is a chart with the manifests that it must be equal to.
type chart struct {
	name      string // of its folder
	release   string
	namespace string
	overlay   string // of the manifests
	values    []string
}

var charts = []chart{
	{"muster-nats", "nats", "fdc-system", "nats", nil},
	{"muster-nats", "nats", "fdc-system", "nats-ebs", []string{"--set", "storage.journaledEBS=true"}},
	{"muster-defender", "defender", "fdc-system", "defender", []string{"--values", "charts/muster-defender/ci/kubernetes-values.yaml"}},
	{"muster-nodes", "muster-nodes", "muster", "nodes", []string{"--values", "charts/muster-nodes/ci/kubernetes-values.yaml"}},
}

func (c chart) folder() string { return filepath.Join("charts", c.name) }

// template renders the chart.
func (c chart) template(t *testing.T, h helm, more ...string) (string, error) {
	t.Helper()
	args := append([]string{"template", c.release, c.folder(), "--namespace", c.namespace}, c.values...)
	return h.try(t, append(args, more...)...)
}

// TestCharts: Helm's linter finds nothing, and what the charts render is what the manifests say, which are tested
// further. So a change of one without the other fails.
func TestCharts(t *testing.T) {
	l := labtest.Start(t, lab.Options{})
	h := newHelm(t, l.Kubeconfig)
	for _, namespace := range []string{"muster", "fdc-system"} {
		if _, err := l.Kubectl(t.Context(), "create", "namespace", namespace); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range charts {
		t.Run(c.overlay, func(t *testing.T) {
			h.run(t, append([]string{"lint", "--strict", c.folder()}, c.values...)...)
			rendered, err := c.template(t, h)
			if err != nil {
				t.Fatal(err)
			}
			manifests, err := l.Kubectl(t.Context(), "kustomize", filepath.Join("kubernetes", c.overlay))
			if err != nil {
				t.Fatal(err)
			}
			compareObjects(t, normalized(t, manifests, c.namespace), normalized(t, rendered, c.namespace))

			// The API server knows every field.
			file := filepath.Join(t.TempDir(), "rendered.yaml")
			if err := os.WriteFile(file, []byte(rendered), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "--namespace", c.namespace, "--filename", file); err != nil {
				t.Error(err)
			}

			k := newKubeconform(t, l, apiVersions(rendered)...)
			said, err := k.check(t, rendered)
			if err != nil {
				t.Error(err)
			}
			t.Logf("kubeconform: %s", said)
			k.checkRejects(t, rendered)
		})
	}
}

// compareObjects reports the objects, as JSON by kind and name, that differ.
func compareObjects(t *testing.T, manifests, chart map[string]string) {
	t.Helper()
	if len(manifests) == 0 {
		t.Error("the manifests have no objects")
	}
	for name, want := range manifests {
		switch got, ok := chart[name]; {
		case !ok:
			t.Errorf("the chart lacks %s", name)
		case got != want:
			t.Errorf("%s differs.\nManifests:\n%s\nChart:\n%s", name, want, got)
		}
	}
	for name := range chart {
		if _, ok := manifests[name]; !ok {
			t.Errorf("the chart has %s, which the manifests lack", name)
		}
	}
}

var (
	kustomizeHash = regexp.MustCompile(`^(.*)-[a-z0-9]{10}$`)
	comment       = regexp.MustCompile(`(?m)^\s*#.*\n`)
)

// normalized returns objects by kind and name, as YAML without what can't be equal: Helm's labels and the hash in the
// names of kustomize's ConfigMaps, both of which restart pods when settings change, comments, and namespaces, which Helm
// leaves to its caller.
func normalized(t *testing.T, objects, namespace string) map[string]string {
	t.Helper()
	maps := map[string]string{} // names of ConfigMaps, by those with a hash
	var all []map[string]any
	for text := range strings.SplitSeq("\n"+objects, "\n---\n") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if len(o) == 0 || o["kind"] == "Namespace" {
			continue
		}
		meta := o["metadata"].(map[string]any)
		if o["kind"] == "ConfigMap" {
			if m := kustomizeHash.FindStringSubmatch(meta["name"].(string)); m != nil {
				maps[m[0]], meta["name"] = m[1], m[1]
			}
			for key, value := range o["data"].(map[string]any) {
				o["data"].(map[string]any)[key] = comment.ReplaceAllString(value.(string), "")
			}
		}
		if meta["namespace"] == nil {
			meta["namespace"] = namespace
		}
		delete(meta, "labels") // those that anything selects by are of the pods
		all = append(all, o)
	}
	out := map[string]string{}
	for _, o := range all {
		if template := podTemplate(o); template != nil {
			annotations, _ := template["metadata"].(map[string]any)["annotations"].(map[string]any)
			delete(annotations, "checksum/config")
			if len(annotations) == 0 {
				delete(template["metadata"].(map[string]any), "annotations")
			}
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		for hashed, name := range maps {
			text = []byte(strings.ReplaceAll(string(text), hashed, name))
		}
		out[fmt.Sprint(o["kind"], " ", o["metadata"].(map[string]any)["name"])] = string(text)
	}
	return out
}

// podTemplate returns the template of the pods of an object; nil if it has none.
func podTemplate(o map[string]any) map[string]any {
	spec, _ := o["spec"].(map[string]any)
	template, _ := spec["template"].(map[string]any)
	return template
}

// TestChartsRefuse: the schemas name what is wrong in the values.
func TestChartsRefuse(t *testing.T) {
	h := newHelm(t, "")
	for _, c := range []struct {
		chart chart
		set   string
		want  string
	}{
		{charts[0], "syncInterval=sometimes", "syncInterval"},
		{charts[0], "servers=2", "servers"},
		{charts[0], "sync_interval=always", "sync_interval"},
		{charts[0], "storage.size=10", "size"},
		{charts[1], "storage.className=fast", "storage"},
		{charts[2], "image.repository=", "repository"},
		{charts[2], "group.replicas=2", "replicas"},
		{charts[2], "nats.url=10.0.0.7:4222", "url"},
		{charts[2], "settings.CASSANDRA_HOSTS=null", "CASSANDRA_HOSTS"},
		{charts[2], "settings.CASSANDRA_HOST=cassandra", "CASSANDRA_HOST"},
		{charts[2], "autoscaling.maxReplicas=10", "give a maximum that is not below the minimum"},
		{charts[3], "settings.MAX_WORKER=4", "MAX_WORKER"},
		{charts[3], "settings.HTTP=off", "HTTP"},
		{charts[3], "settings.PROMETHEUS_URL=null", "PROMETHEUS_URL"},
		{charts[3], "settingsDocument=/muster/prod/settings", "settingsDocument"},
		{charts[3], "image.repository=", "repository"},
	} {
		t.Run(c.chart.name+" "+c.set, func(t *testing.T) {
			if _, err := c.chart.template(t, h, "--set", c.set); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error that names %s", err, c.want)
			}
		})
	}
}

// TestChartValues: what values stand for arrives in the objects.
func TestChartValues(t *testing.T) {
	h := newHelm(t, "")
	for _, c := range []struct {
		chart chart
		set   []string
		want  []string
	}{
		{charts[0], []string{"servers=1,syncInterval=2m"}, []string{`sync_interval: "2m"`, "replicas: 1\n"}},
		{charts[0], []string{"storage.className=fast"}, []string{"storageClassName: fast"}},
		{charts[2], []string{"settings.CASSANDRA_TIMEOUT_SEC=1000000"}, []string{`CASSANDRA_TIMEOUT_SEC: "1000000"`}},
		{charts[2], []string{"group.slots=2560,group.shards=4,group.retryAttempts=0"}, []string{"--slots\n            - \"2560\"", "--shards\n            - \"4\"", "--retry-attempts\n            - \"0\""}},
		{charts[2], []string{"autoscaling.enabled=false,pods=7"}, []string{"replicas: 7"}},
		{charts[2], []string{"secrets={cassandra}", "settings.CASSANDRA_PASSWORD_FILE=/secrets/cassandra/password"}, []string{"mountPath: /secrets/cassandra", "secretName: cassandra"}},
		{charts[3], []string{"settings.MAX_WORKERS=1000000,settings.CPU_UP=0.85,settings.SPOT=false"}, []string{`MAX_WORKERS: "1000000"`, `CPU_UP: "0.85"`, `SPOT: "false"`}},
		{charts[3], []string{"secrets={nats-ca}", "settings.NATS_CA=/secrets/nats-ca/ca.pem"}, []string{"mountPath: /secrets/nats-ca", "NATS_CA: \"/secrets/nats-ca/ca.pem\""}},
	} {
		t.Run(c.chart.name+" "+strings.Join(c.set, " "), func(t *testing.T) {
			var args []string
			for _, s := range c.set {
				args = append(args, "--set", s)
			}
			out, err := c.chart.template(t, h, args...)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("%q is not in what was rendered:\n%s", w, out)
				}
			}
		})
	}
}

// TestChartOfNATS has the server itself read the configuration that the chart renders, for each number of servers.
func TestChartOfNATS(t *testing.T) {
	h := newHelm(t, "")
	t.Setenv("SERVER_NAME", "nats-0")
	for _, r := range role.All {
		t.Setenv(accounts.Variable(defender.Partition(0).User(r)), "p-"+string(r))
	}
	for servers, sync := range map[int]string{1: "always", 3: "2m", 5: "always"} {
		out, err := charts[0].template(t, h, "--set", fmt.Sprintf("servers=%d,syncInterval=%s", servers, sync))
		if err != nil {
			t.Fatal(err)
		}
		o, err := natsserver.ProcessConfigFile(natsConfig(t, out))
		if err != nil {
			t.Fatal(err)
		}
		routes := servers
		if servers == 1 {
			routes = 0
		}
		if len(o.Routes) != routes {
			t.Errorf("%d servers: %d routes, want %d", servers, len(o.Routes), routes)
		}
		if o.SyncAlways != (sync == "always") || sync == "2m" && o.SyncInterval.Minutes() != 2 {
			t.Errorf("syncInterval %s: always is %t, the interval %s", sync, o.SyncAlways, o.SyncInterval)
		}
		if len(o.Users) != len(role.All) {
			t.Errorf("%d users, want one for each of the roles %v", len(o.Users), role.All)
		}
	}
}

// TestChartOfNATSWithOtherAccounts: each user's password comes from a secret of its own, whatever the group.
func TestChartOfNATSWithOtherAccounts(t *testing.T) {
	h := newHelm(t, "")
	config, err := accounts.Account{Group: partition.Config{Name: "orders", Stream: "orders", Subject: "orders.*", Slots: 8}, MaxFile: "1GiB"}.Config()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "accounts.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := charts[0].template(t, h, "--set-file", "accounts="+file)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range role.All {
		user := partition.Config{Name: "orders"}.User(r)
		want := "{name: " + accounts.Variable(user) + ", valueFrom: {secretKeyRef: {name: nats-" + user + ", key: password}}}"
		if used := strings.Contains(config, `"`+user+`"`); used != strings.Contains(out, want) {
			t.Errorf("user %s is in the accounts: %t; the servers' variable is wrong: %s", user, used, want)
		}
	}
	if strings.Contains(out, "nats-defender-") || !strings.Contains(out, "nats-orders-worker") {
		t.Errorf("the servers take passwords of users that there are not, or lack some:\n%s", out)
	}
}

// natsConfig writes the files of the ConfigMap among objects into a folder and returns the configuration's path.
func natsConfig(t *testing.T, objects string) string {
	t.Helper()
	for text := range strings.SplitSeq("\n"+objects, "\n---\n") {
		var m corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(text), &m); err != nil || m.Kind != "ConfigMap" {
			continue
		}
		dir := t.TempDir()
		for name, content := range m.Data {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return filepath.Join(dir, "nats.conf")
	}
	t.Fatal("there is no ConfigMap")
	return ""
}

// TestChartSettings: the schemas list the settings that the code has, and no others. -update writes them.
func TestChartSettings(t *testing.T) {
	t.Parallel()
	tls := []setting.Info{
		{Env: "NATS_CA", Meaning: "PEM of the CA that signed the servers' certificates"},
		{Env: "NATS_CERT", Meaning: "PEM of the client's certificate"},
		{Env: "NATS_KEY", Meaning: "PEM of its key"},
	}
	for _, s := range tls {
		if !strings.Contains(access.Variables, s.Env) {
			t.Errorf("%s is not read: %s", s.Env, access.Variables)
		}
	}
	daemon := slices.Clone(tls)
	for _, g := range append(connect.Groups(), connect.Group{Settings: workers.Settings()}, nodescommand.DaemonSettings()) {
		daemon = append(daemon, g.Settings...)
	}
	// The chart gives HTTP as a flag, and its pod has no disk and no kubeconfig.
	daemon = slices.DeleteFunc(daemon, func(s setting.Info) bool { return slices.Contains([]string{"HTTP", "DIR", "KUBECONFIG"}, s.Env) })
	for name, settings := range map[string][]setting.Info{"muster-defender": append(tls, cassandra.Settings()...), "muster-nodes": daemon} {
		file := filepath.Join("charts", name, "values.schema.json")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		const opening = "\"properties\": {\n"
		settingsAt := strings.Index(string(text), `"settings": {`)
		begin := settingsAt + strings.Index(string(text[max(0, settingsAt):]), opening) + len(opening)
		end := strings.Index(string(text), "\n      }\n    },\n    \"secrets\"")
		if settingsAt < 0 || end < begin {
			t.Fatalf("%s has no place for settings", file)
		}
		if got, want := string(text[begin:end]), schemaOf(t, settings); got != want {
			if !*update {
				t.Errorf("%s does not list the settings of the code: go test ./deploy -run TestChartSettings -update\ngot\n%s\nwant\n%s", file, got, want)
			} else if err := os.WriteFile(file, []byte(string(text[:begin])+want+string(text[end:])), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestChartOfTheDaemonRequires: the schema asks for a setting only if the daemon does. So it takes user data of one's own
// without what only Muster's user data needs.
func TestChartOfTheDaemonRequires(t *testing.T) {
	h := newHelm(t, "")
	least := map[string]string{
		"CLUSTER": "prod", "STATE_TABLE": "state", "LOGS_TABLE": "logs", "LAUNCH_TEMPLATE": "lt-0a1b", "LAUNCH_TEMPLATE_VERSION": "7", "PROMETHEUS_URL": "http://prometheus:9090",
	}
	joining := map[string]string{"K3S_URL": "https://10.0.0.10:6443", "K3S_TOKEN_REF": "ssm:/muster/prod/agent-token"}
	for name, c := range map[string]struct {
		more map[string]string
		want bool
	}{
		"Muster's user data":          {joining, true},
		"Muster's, without the token": {map[string]string{"K3S_URL": joining["K3S_URL"]}, false},
		"Muster's, without anything":  {nil, false},
		"the template's":              {map[string]string{"USER_DATA": "template"}, true},
		"no Prometheus":               {map[string]string{"USER_DATA": "template", "PROMETHEUS_URL": ""}, false},
		"no need of Prometheus":       {map[string]string{"USER_DATA": "template", "PROMETHEUS_URL": "", "SIGNALS": "kubernetes"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			settings := maps.Clone(least)
			maps.Copy(settings, c.more)
			maps.DeleteFunc(settings, func(_, value string) bool { return value == "" })
			args := []string{"template", "muster-nodes", "charts/muster-nodes", "--set", "image.repository=registry.example.com/muster-nodes"}
			for setting, value := range settings {
				args = append(args, "--set-string", "settings."+setting+"="+value)
			}
			_, helmErr := h.try(t, args...)
			_, daemonErr := connect.Parse(func(name string) (string, bool) { v, ok := settings[name]; return v, ok })
			if (helmErr == nil) != c.want || (daemonErr == nil) != c.want {
				t.Errorf("want it to be accepted: %t\nHelm: %v\nthe daemon: %v", c.want, helmErr, daemonErr)
			}
		})
	}
}

// TestChartOfTheDaemonWithADocument: the daemon is told where in SSM its settings are, and then needs none in its values.
func TestChartOfTheDaemonWithADocument(t *testing.T) {
	h := newHelm(t, "")
	out := h.run(t, "template", "muster-nodes", "charts/muster-nodes", "--set", "image.repository=registry.example.com/muster-nodes",
		"--set", "settingsDocument=ssm:/muster/prod/settings:3")
	if want := `{name: SETTINGS, value: "ssm:/muster/prod/settings:3"}`; !strings.Contains(out, want) {
		t.Errorf("no %s in\n%s", want, out)
	}
	_, err := h.try(t, "template", "muster-nodes", "charts/muster-nodes", "--set", "image.repository=registry.example.com/muster-nodes",
		"--set", "settingsDocument=ssm:/muster/prod/settings:3", "--set", "settings.MAX_WORKER=4")
	if err == nil || !strings.Contains(err.Error(), "MAX_WORKER") {
		t.Errorf("a name that does not exist: %v", err)
	}
}

// schemaOf returns the members of a schema's properties that describe settings.
func schemaOf(t *testing.T, settings []setting.Info) string {
	t.Helper()
	var out []string
	for _, s := range settings {
		meaning := s.Meaning
		if s.Default != "" {
			meaning += " (" + s.Default + ")"
		}
		var description strings.Builder
		encoder := json.NewEncoder(&description)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(meaning); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("        %q: {\"type\": [\"string\", \"number\", \"boolean\"], \"description\": %s}", s.Env, strings.TrimSpace(description.String())))
	}
	slices.Sort(out)
	return strings.Join(out, ",\n")
}

// TestChartOfDefendersThatRespondToEvictions: the pods name the responder that the defender is, whose account may do what it asks for, and
// the API server of Kubernetes 1.37 knows every field.
func TestChartOfDefendersThatRespondToEvictions(t *testing.T) {
	l := labtest.Start(t, lab.Options{Kubernetes: "1.37"})
	h := newHelm(t, l.Kubeconfig)
	if _, err := l.Kubectl(t.Context(), "create", "namespace", "fdc-system"); err != nil {
		t.Fatal(err)
	}
	rendered, err := charts[2].template(t, h, "--set", "respondToEvictions=true")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"evictionResponders: [{name: " + responder.Name + ",", "- --respond-to-evictions", "- $(POD_UID)", "automountServiceAccountToken: true"} {
		if !strings.Contains(rendered, want) {
			t.Errorf("no %q in\n%s", want, rendered)
		}
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(rendered), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Kubectl(t.Context(), "apply", "--validate=strict", "--namespace", "fdc-system", "--filename", file); err != nil {
		t.Fatal(err)
	}
	for _, can := range [][]string{{"list", "evictions.lifecycle.k8s.io"}, {"watch", "evictions.lifecycle.k8s.io"}, {"patch", "evictions.lifecycle.k8s.io", "--subresource=status"}} {
		args := append([]string{"auth", "can-i"}, can...)
		if out, err := l.Kubectl(t.Context(), append(args, "--namespace", "fdc-system", "--as=system:serviceaccount:fdc-system:defender")...); err != nil || strings.TrimSpace(out) != "yes" {
			t.Errorf("%v: %s, %v", can, out, err)
		}
	}
}
