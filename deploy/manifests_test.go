package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/broker/accounts"
	"github.com/muster-dev/muster/defender"
	defendercommand "github.com/muster-dev/muster/internal/command/defender"
	nodescommand "github.com/muster-dev/muster/internal/command/nodes"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestARealControlPlaneTakesTheManifests has a real API server check every object of every overlay, field by field.
func TestARealControlPlaneTakesTheManifests(t *testing.T) {
	l := labtest.Start(t, lab.Options{})
	// An object is checked against its namespace even when nothing is written.
	for _, namespace := range []string{"muster", "fdc-system"} {
		if _, err := l.Kubectl(t.Context(), "create", "namespace", namespace); err != nil {
			t.Fatal(err)
		}
	}
	for overlay, want := range map[string][]string{
		"nodes":    {"deployment.apps/muster-nodes", "clusterrole.rbac.authorization.k8s.io/muster-nodes", "configmap/muster-nodes-"},
		"defender": {"deployment.apps/defender", "horizontalpodautoscaler.autoscaling/defender-hpa", "poddisruptionbudget.policy/defender", "networkpolicy.networking.k8s.io/defender"},
		"nats":     {"statefulset.apps/nats", "service/nats", "configmap/nats-"},
		"nats-ebs": {"statefulset.apps/nats", "service/nats", "configmap/nats-", "storageclass.storage.k8s.io/nats-journaled"},
	} {
		t.Run(overlay, func(t *testing.T) {
			out, err := l.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-k", filepath.Join("kubernetes", overlay))
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("%s is not among what was applied:\n%s", w, out)
				}
			}
		})
	}
}

// TestJournaledVolumes: on EBS the servers' volumes have the class whose file systems journal data.
func TestJournaledVolumes(t *testing.T) {
	l := labtest.Start(t, lab.Options{})
	out, err := l.Kubectl(t.Context(), "kustomize", filepath.Join("kubernetes", "nats-ebs"))
	if err != nil {
		t.Fatal(err)
	}
	var class storagev1.StorageClass
	var servers appsv1.StatefulSet
	for object := range strings.SplitSeq(out, "\n---\n") {
		switch {
		case strings.Contains(object, "kind: StorageClass"):
			err = yaml.UnmarshalStrict([]byte(object), &class)
		case strings.Contains(object, "kind: StatefulSet"):
			err = yaml.UnmarshalStrict([]byte(object), &servers)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Contains(class.MountOptions, "data=journal") {
		t.Errorf("the class's mount options are %q, want data=journal among them", class.MountOptions)
	}
	claims := servers.Spec.VolumeClaimTemplates
	if len(claims) != 1 || claims[0].Spec.StorageClassName == nil || *claims[0].Spec.StorageClassName != class.Name {
		t.Errorf("the servers' volumes are claimed by %+v, want class %s", claims, class.Name)
	}
}

// TestArguments: the binary of each image takes the arguments that its pods give it.
func TestArguments(t *testing.T) {
	t.Parallel()
	for file, root := range map[string]*cobra.Command{
		"kubernetes/nodes/daemon.yaml":      nodescommand.Binary(),
		"kubernetes/defender/defender.yaml": defendercommand.Binary(),
	} {
		container := objectOf[appsv1.Deployment](t, file, "Deployment").Spec.Template.Spec.Containers[0]
		if container.Image != root.Name() {
			t.Errorf("%s: image %s, want %s", file, container.Image, root.Name())
		}
		cmd, flags, err := root.Find(container.Args)
		if err != nil || cmd.Name() != "run" {
			t.Errorf("%s: arguments %q run %q: %v", file, container.Args, cmd.Name(), err)
			continue
		}
		if err := cmd.ParseFlags(flags); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestTheDaemonsSettingsAreRight reads the settings of the overlay as the daemon does.
func TestTheDaemonsSettingsAreRight(t *testing.T) {
	text, err := os.ReadFile("kubernetes/nodes/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var k struct {
		ConfigMapGenerator []struct{ Literals []string }
	}
	if err := yaml.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	settings := map[string]string{}
	for _, g := range k.ConfigMapGenerator {
		for _, l := range g.Literals {
			name, value, _ := strings.Cut(l, "=")
			settings[name] = value
		}
	}
	known := connect.Known(append(connect.Groups(), connect.Group{Settings: workers.Settings()}))
	for name := range settings {
		if !slices.Contains(known, name) {
			t.Errorf("there is no setting %s", name)
		}
	}
	lookup := func(name string) (string, bool) { v, ok := settings[name]; return v, ok }
	s, err := connect.Parse(lookup)
	w, workersErr := workers.ConfigFromEnv(lookup)
	if err != nil || workersErr != nil {
		t.Fatal(err, workersErr)
	}
	if w.URL == "" || w.Deployment != "fdc-system/defender" || s.EC2.Queue == "" || len(settings) < 10 {
		t.Errorf("got %+v, %+v", s, w)
	}
}

// TestTheNATSConfigurationIsRight has the server itself read its configuration.
func TestTheNATSConfigurationIsRight(t *testing.T) {
	t.Setenv("SERVER_NAME", "nats-0")
	for _, r := range role.All {
		t.Setenv(accounts.Variable(defender.Partition(0).User(r)), "p-"+string(r))
	}
	o, err := natsserver.ProcessConfigFile("kubernetes/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if o.ServerName != "nats-0" || !o.JetStream || o.StoreDir != "/data" || len(o.Routes) != 3 || o.Cluster.Name != "fdc" {
		t.Errorf("got %+v", o)
	}
	if !o.SyncAlways {
		t.Error("the servers acknowledge what isn't on the disk yet: give sync_interval: always")
	}
	if len(o.Users) != len(role.All) {
		t.Errorf("%d users, want one for each of the roles %v", len(o.Users), role.All)
	}
	// One server with it starts, and the worker may provision there.
	s := natstest.Start(t, func(own *natsserver.Options) {
		o.StoreDir, o.Host, o.Port, o.NoSigs, o.NoLog = own.StoreDir, own.Host, own.Port, own.NoSigs, own.NoLog
		o.Cluster, o.Routes, o.HTTPPort = natsserver.ClusterOpts{}, nil, 0
		*own = *o
	})
	if nc, err := access.ConnectAs(s.URL(), "test", access.User{Name: "defender-worker", Password: "p-nodes"}); err == nil {
		nc.Close()
		t.Error("a wrong password is accepted")
	}
	nc, err := access.ConnectAs(s.URL(), "test", access.User{Name: "defender-worker", Password: "p-worker"})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := defender.Provision(t.Context(), nc, defender.Partition(8)); err != nil {
		t.Error(err)
	}
}

// TestTheServersAccountsAreThoseOfTheCode compares the accounts that are shipped with what the permissions of the code come to, and the
// passwords that they name with what the manifests mount.
func TestTheServersAccountsAreThoseOfTheCode(t *testing.T) {
	shipped, err := os.ReadFile("kubernetes/nats/accounts.conf")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(shipped), "\n") // below the comment
	want, err := accounts.Account{Group: defender.Partition(512), Permissions: defender.Permissions, MaxFile: "7GiB"}.Config()
	if err != nil {
		t.Fatal(err)
	}
	if block != want {
		t.Error("kubernetes/nats/accounts.conf is not what the code says: write it again, with muster broker accounts --max-file 7GiB")
	}
	manifest := func(name string) string {
		text, err := os.ReadFile(filepath.Join("kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	secret := func(user string) string { return "{secretKeyRef: {name: nats-" + user + ", key: password}}" }
	servers := manifest("nats/nats.yaml")
	for _, r := range role.All {
		user := defender.Partition(0).User(r)
		if line := "{name: " + accounts.Variable(user) + ", valueFrom: " + secret(user) + "}"; !strings.Contains(servers, line) {
			t.Errorf("the servers lack %s", line)
		}
	}
	for file, r := range map[string]role.Role{"defender/defender.yaml": role.Worker, "nodes/daemon.yaml": role.Nodes} {
		user := defender.Partition(0).User(r)
		text := manifest(file)
		text = strings.ReplaceAll(text, ", optional: true}", "}")
		if strings.Count(text, "secretKeyRef") != 1 || !strings.Contains(text, "{name: NATS_USER, value: "+user+"}") || !strings.Contains(text, "{name: NATS_PASSWORD, valueFrom: "+secret(user)+"}") {
			t.Errorf("%s does not connect as %s, and only as that", file, user)
		}
	}
}
