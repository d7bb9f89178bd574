package instances_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/instances"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

const (
	regionName = "eu-west-1"
	zone       = "eu-west-1a"
	tokenName  = "/muster/agent-token"
)

// rig is a simulated region whose instances are real machines of a laboratory.
type rig struct {
	region *region.Region
	lab    *lab.Lab
	cloud  *ec2.Cloud
	sdk    *awsec2.Client
	config ec2.Config
	kube   *kubernetes.Clientset
}

func newRig(t *testing.T) *rig {
	t.Helper()
	policy := nodes.DefaultPolicy()
	policy.Cluster = "local"
	machines := instances.New(instances.Options{Region: regionName})
	reg, err := region.Start(region.Options{Sim: sim.Options{Policy: policy, Zones: []string{zone}}, Dir: t.TempDir(), Machines: machines})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(reg.Close(), machines.Close()); err != nil {
			t.Error(err)
		}
	})
	l := labtest.Start(t, lab.Options{RealNodes: true, AWS: reg.AWSURL})
	machines.Attach(l, reg.Simulator)
	reg.AWS.PutParameter(tokenName, l.JoinToken)

	r := &rig{region: reg, lab: l}
	sdk := aws.Config{Region: regionName, BaseEndpoint: &reg.AWSURL, Credentials: credentials.NewStaticCredentialsProvider("simulated", "simulated", "")}
	r.config = ec2.Config{Cluster: "local", LaunchTemplate: "lt-00000001", LaunchTemplateVersion: "1", InstanceTypes: []string{"t3.medium"},
		UserData: ec2.UserDataK3s, Join: ec2.Join{Server: l.Server, TokenRef: "ssm:" + tokenName}}
	r.sdk = awsec2.NewFromConfig(sdk, ec2.Options)
	r.cloud, err = ec2.New(ec2.API{EC2: r.sdk, Parameters: ssm.NewFromConfig(sdk), Secrets: secretsmanager.NewFromConfig(sdk), Identity: sts.NewFromConfig(sdk)}, r.config)
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if r.kube, err = kubernetes.NewForConfig(admin); err != nil {
		t.Fatal(err)
	}
	return r
}

// launch launches an instance as the node plane does, and returns its ID.
func (r *rig) launch(t *testing.T, token string, market nodes.Market) string {
	t.Helper()
	in, err := r.cloud.Launch(t.Context(), nodes.LaunchRequest{
		Token: token, ActionID: "action-" + token, Cluster: "local", Template: r.config.Template(),
		Offering: nodes.Offering{Zone: zone, Subnet: "subnet-" + zone, Type: "t3.medium", Market: market},
	})
	if err != nil {
		t.Fatal(err)
	}
	return in.ID
}

// says waits until the console of an instance, as EC2 gives it, has a text.
func (r *rig) says(t *testing.T, id, text string) {
	t.Helper()
	labtest.Eventually(t, "the console of "+id, func() error {
		d, err := r.cloud.Diagnose(t.Context(), id)
		if err == nil && !strings.Contains(d.Console, text) {
			err = fmt.Errorf("%q is not in it: %s", text, d.Console)
		}
		return err
	})
}

// joins waits until the node of an instance is Ready, and returns it.
func (r *rig) joins(t *testing.T, id string) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	labtest.Eventually(t, "node "+id+" joining", func() (err error) {
		n, err = r.kube.CoreV1().Nodes().Get(t.Context(), id, metav1.GetOptions{})
		if err != nil {
			d, _ := r.cloud.Diagnose(context.WithoutCancel(t.Context()), id)
			return fmt.Errorf("%w; its console: %s", err, d.Console)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is not Ready")
	})
	return n
}

// runs reports whether the machine of an instance runs.
func (r *rig) runs(t *testing.T, id string) bool {
	t.Helper()
	s, err := r.lab.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s.Running
}

func (r *rig) ends(t *testing.T, id string) {
	t.Helper()
	labtest.Eventually(t, "the end of machine "+id, func() error {
		if r.runs(t, id) {
			return errors.New("it runs")
		}
		return nil
	})
}

// metadata returns what a program on the machine of an instance reads from its metadata service, and the status.
func (r *rig) metadata(t *testing.T, id, path string) string {
	t.Helper()
	s, err := r.lab.Inspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	const ask = `token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)
curl -s -o - -w '%{http_code}' -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$0"`
	out, err := exec.CommandContext(t.Context(), "nsenter", fmt.Sprint("--net=/proc/", s.PID, "/ns/net"), "sh", "-c", ask, path).CombinedOutput() //nolint:gosec // the test's own
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if text := string(out); !strings.HasSuffix(text, "404") {
		return text
	}
	return "404"
}

// told waits until the metadata service of an instance's machine has a text.
func (r *rig) told(t *testing.T, id, path, want string) {
	t.Helper()
	labtest.Eventually(t, path+" of "+id, func() error {
		if got := r.metadata(t, id, path); got != want {
			return fmt.Errorf("it is %s, want %s", got, want)
		}
		return nil
	})
}

// TestRealNodesOfARegion launches instances by the real adapter of EC2: they boot our user
// data, which asks for their metadata and their token, and join.
func TestRealNodesOfARegion(t *testing.T) {
	r := newRig(t)
	id := r.launch(t, "one", nodes.OnDemand)

	t.Run("our user data joins", func(t *testing.T) {
		n := r.joins(t, id)
		r.says(t, id, "muster: "+id+" has started its K3s agent")
		if want := "aws:///" + zone + "/" + id; n.Spec.ProviderID != want {
			t.Errorf("its provider ID is %s, want %s", n.Spec.ProviderID, want)
		}
		for label, want := range map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: regionName, corev1.LabelInstanceTypeStable: "t3.medium"} {
			if got := n.Labels[label]; got != want {
				t.Errorf("its label %s is %q, want %q", label, got, want)
			}
		}
	})

	t.Run("a repeated launch starts no second machine", func(t *testing.T) {
		if again := r.launch(t, "one", nodes.OnDemand); again != id {
			t.Errorf("got %s", again)
		}
	})

	t.Run("a terminated instance has no machine", func(t *testing.T) {
		if err := r.cloud.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		r.ends(t, id)
	})

	t.Run("a Spot instance loses its machine 120 s after the warning", func(t *testing.T) {
		spot := r.launch(t, "two", nodes.Spot)
		r.joins(t, spot)
		const interruption, rebalance = "spot/instance-action", "events/recommendations/rebalance"
		for _, path := range []string{interruption, rebalance} {
			if told := r.metadata(t, spot, path); told != "404" {
				t.Errorf("before anything was announced %s is %s", path, told)
			}
		}
		recommended := r.region.Simulator.Announce(nodes.Rebalance, spot)
		r.told(t, spot, rebalance, fmt.Sprintf(`{"noticeTime":%q}200`, recommended.At.UTC().Format(time.RFC3339)))
		warned := r.region.Simulator.Announce(nodes.Warning, spot)
		r.told(t, spot, interruption, fmt.Sprintf(`{"action":"terminate","time":%q}200`, warned.At.UTC().Add(2*time.Minute).Format(time.RFC3339)))
		r.region.Simulator.Advance(60 * time.Second)
		if !r.runs(t, spot) {
			t.Error("it ended before its time")
		}
		r.region.Simulator.Advance(60 * time.Second)
		r.ends(t, spot)
	})

	t.Run("a stopped instance has no machine", func(t *testing.T) {
		stopped := r.launch(t, "stopped", nodes.OnDemand)
		r.joins(t, stopped)
		if _, err := r.sdk.StopInstances(t.Context(), &awsec2.StopInstancesInput{InstanceIds: []string{stopped}}); err != nil {
			t.Fatal(err)
		}
		r.ends(t, stopped)
	})

	t.Run("a machine with a wrong token does not join", func(t *testing.T) {
		r.region.AWS.PutParameter(tokenName, "abcdef.0123456789abcdef")
		stranger := r.launch(t, "three", nodes.OnDemand)
		r.says(t, stranger, "k3s has ended")
		nodes, err := r.kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes.Items {
			if n.Name == stranger {
				t.Error("it joined")
			}
		}
	})
}
