package awsapi_test

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim/awsapi"
)

// machines notes what it is told to launch.
type machines struct {
	userData map[string][]string // by instance, one per call
	rebooted []string
}

func (m *machines) Reboot(_ context.Context, id string) error {
	m.rebooted = append(m.rebooted, id)
	return nil
}

func (m *machines) Launch(in nodes.Instance, userData string) {
	m.userData[in.ID] = append(m.userData[in.ID], userData)
}

func (m *machines) Console(_ context.Context, id string) (string, bool) {
	return "console of " + id, m.userData[id] != nil
}

func TestMachines(t *testing.T) {
	m := &machines{userData: map[string][]string{}}
	_, post := regionOf(t, awsapi.Options{Machines: m, UserData: map[string]string{"lt-1/3": "the template's"}})
	launch := func(token, more string) string {
		t.Helper()
		code, body := post("", "Action=RunInstances&MinCount=1&MaxCount=1&SubnetId=subnet-a&InstanceType=t3.large&ClientToken="+token+"&"+more)
		_, after, ok := strings.Cut(body, "<instanceId>")
		if code != 200 || !ok {
			t.Fatalf("got %d: %s", code, body)
		}
		id, _, _ := strings.Cut(after, "<")
		return id
	}

	t.Run("the launch's user data", func(t *testing.T) {
		own := url.QueryEscape(base64.StdEncoding.EncodeToString([]byte("its own")))
		id := launch("one", "LaunchTemplate.LaunchTemplateId=lt-1&LaunchTemplate.Version=3&UserData="+own)
		if got := m.userData[id]; len(got) != 1 || got[0] != "its own" {
			t.Errorf("got %q", got)
		}
	})

	t.Run("its launch template's, where it has none", func(t *testing.T) {
		id := launch("two", "LaunchTemplate.LaunchTemplateId=lt-1&LaunchTemplate.Version=3")
		if got := m.userData[id]; len(got) != 1 || got[0] != "the template's" {
			t.Errorf("got %q", got)
		}
	})

	t.Run("the console is the machine's", func(t *testing.T) {
		id := launch("three", "ImageId=ami-1")
		_, body := post("", "Action=GetConsoleOutput&InstanceId="+id)
		if want := base64.StdEncoding.EncodeToString([]byte("console of " + id)); !strings.Contains(body, want) {
			t.Errorf("got %s", body)
		}
	})

	t.Run("a reboot is the machine's", func(t *testing.T) {
		id := launch("four", "ImageId=ami-1")
		code, body := post("", "Action=RebootInstances&InstanceId.1="+id)
		if code != 200 || !strings.Contains(body, "<return>true</return>") {
			t.Errorf("got %d: %s", code, body)
		}
		if code, body := post("", "Action=RebootInstances&InstanceId.1=i-fff"); code != 400 || !strings.Contains(body, "InvalidInstanceID.NotFound") {
			t.Errorf("of an unknown one: got %d: %s", code, body)
		}
		if len(m.rebooted) != 1 || m.rebooted[0] != id {
			t.Errorf("rebooted: %q", m.rebooted)
		}
	})

	t.Run("a stopped instance is still there, and can be terminated", func(t *testing.T) {
		id := launch("five", "ImageId=ami-1")
		if code, body := post("", "Action=StopInstances&InstanceId.1="+id); code != 200 || !strings.Contains(body, "<name>stopping</name>") {
			t.Errorf("got %d: %s", code, body)
		}
		if code, body := post("", "Action=TerminateInstances&InstanceId.1="+id); code != 200 || !strings.Contains(body, "<name>shutting-down</name>") || !strings.Contains(body, "<name>stopping</name>") {
			t.Errorf("terminated: got %d: %s", code, body)
		}
		if code, body := post("", "Action=StopInstances&InstanceId.1=i-fff"); code != 400 || !strings.Contains(body, "InvalidInstanceID.NotFound") {
			t.Errorf("of an unknown one: got %d: %s", code, body)
		}
	})

	t.Run("a Spot instance can't be stopped", func(t *testing.T) {
		id := launch("six", "ImageId=ami-1&InstanceMarketOptions.MarketType=spot")
		if code, body := post("", "Action=StopInstances&InstanceId.1="+id); code != 400 || !strings.Contains(body, "UnsupportedOperation") {
			t.Errorf("got %d: %s", code, body)
		}
	})

	t.Run("an instance without a machine has the simulator's console", func(t *testing.T) {
		_, body := post("", "Action=GetConsoleOutput&InstanceId=i-001")
		if want := base64.StdEncoding.EncodeToString([]byte("boot of i-001")); !strings.Contains(body, want) {
			t.Errorf("got %s", body)
		}
	})
}

func TestAPI_PutParameter(t *testing.T) {
	api, post := region(t)
	api.PutParameter("/muster/token", "secret")
	if code, body := post("AmazonSSM.GetParameter", `{"Name":"/muster/token"}`); code != 200 || !strings.Contains(body, `"Value":"secret"`) {
		t.Errorf("got %d: %s", code, body)
	}
}
