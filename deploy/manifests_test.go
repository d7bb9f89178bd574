package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/workers"
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
}
