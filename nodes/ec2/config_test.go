package ec2_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/setting"
)

func env(values map[string]string) setting.Lookup {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

func TestConfigFromEnvironment(t *testing.T) {
	c, err := ec2.ConfigFromEnv(env(map[string]string{
		"CLUSTER": "prod", "LAUNCH_TEMPLATE": "lt-0a1b", "LAUNCH_TEMPLATE_VERSION": "7", "K3S_URL": "https://10.0.0.10:6443",
		"K3S_TOKEN_REF": "ssm:/muster/prod/agent-token", "INSTANCE_TYPES": "t3.large, m5.large", "SECURITY_GROUP_IDS": "sg-1,sg-2",
		"AWS_REGION": "eu-central-1", "AWS_ENDPOINT_URL_EC2": "http://127.0.0.1:1",
	}))
	if err != nil {
		t.Fatal(err)
	}
	if want := (nodes.Template{
		ID: "lt-0a1b", Version: "7", SecurityGroups: "sg-1,sg-2",
		UserDataRef: "k3s:server=https%3A%2F%2F10.0.0.10%3A6443&token=ssm%3A%2Fmuster%2Fprod%2Fagent-token",
	}); c.Template() != want {
		t.Errorf("%+v", c.Template())
	}
	if c.Region != "eu-central-1" || c.Endpoints["ec2"] != "http://127.0.0.1:1" || len(c.InstanceTypes) != 2 || !c.Spot {
		t.Errorf("%+v", c)
	}
}

func TestEverySettingWrongAtOnceIsOneMessage(t *testing.T) {
	_, err := ec2.ConfigFromEnv(env(map[string]string{
		"CLUSTER_TAG": "owned", "CONTROL_PLANE_TAG": "=", "SUBNET_IDS": "a,b", "SUBNET_TAG": "x=y", "LAUNCH_TEMPLATE_VERSION": "$Latest", "AMI_ID": "ubuntu",
		"SECURITY_GROUP_IDS": "default", "USER_DATA": "k3s", "K3S_URL": "http://10.0.0.10:6443", "K3S_TOKEN_REF": "K10abcdef0123456789::server:hunter2",
		"K3S_VERSION": "1.36", "K3S_AGENT_ARGS": "--x '; rm -rf /'", "INTERRUPTION_QUEUE": "queue",
	}))
	var all *setting.Error
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	for _, name := range []string{
		"CLUSTER_TAG", "CONTROL_PLANE_TAG", "SUBNET_IDS", "SUBNET_TAG", "LAUNCH_TEMPLATE_VERSION", "AMI_ID", "SECURITY_GROUP_IDS", "INSTANCE_PROFILE",
		"K3S_URL", "K3S_TOKEN_REF", "K3S_VERSION", "K3S_AGENT_ARGS", "INTERRUPTION_QUEUE",
	} {
		if !strings.Contains(err.Error(), "\n  "+name+"=") {
			t.Errorf("%s is not complained about", name)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a token that was put where its reference belongs is printed: %v", err)
	}
	for _, p := range all.Problems {
		if p.Fix == "" {
			t.Errorf("%s has no fix", p.Setting)
		}
	}
}

func TestWithoutAnySettingWhatIsMissingIsNamed(t *testing.T) {
	_, err := ec2.ConfigFromEnv(env(nil))
	for _, name := range []string{"CLUSTER_TAG", "LAUNCH_TEMPLATE", "SECURITY_GROUP_IDS", "K3S_URL", "K3S_TOKEN_REF", "INSTANCE_PROFILE"} {
		if err == nil || !strings.Contains(err.Error(), "\n  "+name+"=") {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}

func TestReferences(t *testing.T) {
	for text, want := range map[string]ec2.Ref{
		"ssm:/muster/prod/token":  {Service: "ssm", Name: "/muster/prod/token"},
		"ssm:token:3":             {Service: "ssm", Name: "token", Version: "3"},
		"secretsmanager:muster/x": {Service: "secretsmanager", Name: "muster/x"},
		"secretsmanager:a#1-2":    {Service: "secretsmanager", Name: "a", Version: "1-2"},
		"secretsmanager:arn:aws:secretsmanager:eu-central-1:123456789012:secret:muster-AbCdEf": {Service: "secretsmanager", Name: "arn:aws:secretsmanager:eu-central-1:123456789012:secret:muster-AbCdEf"},
	} {
		if got, err := ec2.ParseRef(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "ssm", "ssm:", "ssm:a b", "ssm:a:", "s3:x", "ssm:$(x)", "ssm:'", "secretsmanager:a#", "ssm:a\nb", "ssm:" + strings.Repeat("a", 3000)} {
		if got, err := ec2.ParseRef(text); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.40q: %+v, %v", text, got, err)
		}
	}
}

// Whatever a reference is read from, it can be written and read again, and nothing of it can end the user data's quotes.
func TestWhatIsReadAsAReferenceIsSafeInAScript(t *testing.T) {
	seeds := []string{"ssm:/a/b:3", "secretsmanager:a#b", "k3s:server=https%3A%2F%2Fa&token=ssm%3Ab", "k3s:args=--x+y&server=https%3A%2F%2Fa%3A1&token=secretsmanager%3Ab&version=v1.36.3%2Bk3s1",
		"k3s:labels=team%3Da%2Cb%3D&server=https%3A%2F%2Fa&taints=x%3Dy%3ANoSchedule&token=ssm%3Ab"}
	hostile := []byte("'\"$`\\\n ;%:#/=&a0")
	r := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 50_000 {
		b := []byte(seeds[r.IntN(len(seeds))])
		for range r.IntN(4) {
			i := r.IntN(len(b))
			b = slices.Replace(b, i, i+r.IntN(2), hostile[r.IntN(len(hostile))])
		}
		s := string(b)
		if ref, err := ec2.ParseRef(s); err == nil {
			read++
			if again, err := ec2.ParseRef(ref.String()); err != nil || again != ref || strings.ContainsAny(s, "'\"$`\\\n ") {
				t.Fatalf("%q: %+v, again %+v, %v", s, ref, again, err)
			}
		}
		if j, err := ec2.ParseJoin(s); err == nil {
			read++
			again, err := ec2.ParseJoin(j.Ref())
			script, err2 := ec2.UserData(j)
			if err != nil || again != j || err2 != nil || strings.Count(script[:strings.Index(script, "# Joins")], "'") != 14 {
				t.Fatalf("%q: %+v, again %+v, %v, %v", s, j, again, err, err2)
			}
		}
	}
	if read < 10_000 {
		t.Errorf("only %d could be read: this shows little", read)
	}
}
