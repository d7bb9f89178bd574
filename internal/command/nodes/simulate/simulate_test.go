package simulate

import (
	"testing"

	"github.com/spf13/cobra"

	nodescommand "github.com/muster-dev/muster/internal/command/nodes"
)

func TestSourcesLeaveOutWhatIsReal(t *testing.T) {
	t.Setenv("KUBECONFIG", "/home/somebody/.kube/config")
	t.Setenv("STATE_TABLE", "production")
	t.Setenv("PROMETHEUS_URL", "http://production:9090")
	t.Setenv("MAX_WORKERS", "7")
	n := nodescommand.NewCommand(nodescommand.Options{}, &cobra.Command{Use: "x"}, nil, nodescommand.DaemonSettings())
	src, err := sources(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"KUBECONFIG", "STATE_TABLE", "PROMETHEUS_URL", "AWS_REGION"} {
		if v, ok := src.Lookup(name); ok {
			t.Errorf("%s=%s reaches the simulation", name, v)
		}
	}
	if v, _ := src.Lookup("MAX_WORKERS"); v != "7" {
		t.Errorf("MAX_WORKERS is %q", v)
	}
}
