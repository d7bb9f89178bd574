package nodes

import (
	"strings"
	"testing"
	"time"
)

// TestFaultOfBoot: what K3s and the join script write names the fault.
func TestFaultOfBoot(t *testing.T) {
	const agent = "muster: i-1 has not joined yet, its agent says: "
	const failed = "cloud-init[9]: cc_scripts_user.py[WARNING]: Failed to run module scripts-user (scripts in /var/lib/cloud/instance/scripts)"
	for _, tt := range []struct {
		name, console string
		want          FaultName
	}{
		{"an empty console", "", FaultBoot},
		{"the middle of a boot", "Booting Linux\ncloud-init 22.4 running 'modules:final'", FaultBoot},
		{"a role that can't read the token", "muster: the agent token can't be read: let this machine's role read ssm /t", FaultTokenUnreadable},
		{"a token of another cluster", agent + `level=error msg="token CA hash does not match the Cluster CA certificate hash: f0 != 8e"`, FaultToken},
		{"a wrong password in the token", agent + `level=info msg="Waiting to retrieve agent configuration; server is not ready: failed to retrieve configuration from server: not authorized"`, FaultToken},
		{"a stale node password", agent + `level=info msg="Waiting to retrieve agent configuration; server is not ready: Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry"`, FaultNameTaken},
		{"a late clock", agent + "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2026-11-26T09:00:00Z is before 2026-11-27T09:00:00Z", FaultClock},
		{"no way to the server", agent + `level=error msg="failed to get CA certs: Get \"https://10.0.0.10:6443/cacerts\": dial tcp 10.0.0.10:6443: i/o timeout"`, FaultServer},
		{"a full disk, and what follows", "cat: write error: No space left on device\nmuster: the K3s installer failed", FaultDisk},
		{"a version that does not exist", "[ERROR]  Download failed\nmuster: the K3s installer failed", FaultInstall},
		{"no metadata", "muster: the instance metadata service does not answer", FaultMetadata},
		{"another failure of the agent", agent + "fatal: something else", FaultAgent},
		{"an agent that says nothing", "muster: i-1 has started its K3s agent\nlogin:", FaultAgentSilent},
		{"user data that fails", "cloud-init[9]: no such package\n" + failed + "\ncloud-init[9]: Running module scripts-user failed", FaultUserData},
		{"user data that fails, by a newer cloud-init", strings.ReplaceAll(failed, "-user", "_user"), FaultUserData},
		{"user data that fails for a cause that is known", "cloud-init[9]: muster: the K3s installer failed\n" + failed, FaultInstall},
		{"a kill during the boot", "Out of memory: Killed process 812 (k3s-agent) total-vm:1kB", FaultMemory},
		{"what was over before", agent + "connection refused\n" + agent + "token is not valid: 401 Unauthorized", FaultToken},
		{"a token that was wrong before", agent + "token is not valid: 401 Unauthorized\n" + agent + "connection refused", FaultServer},
		{"a refusal of somebody else, before the agent began", "connection refused", FaultBoot},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, saw := faultOfBoot(Diagnosis{Console: tt.console})
			if got != tt.want {
				t.Errorf("got %q by %q, want %q", got, saw, tt.want)
			}
			if got.Fix() == "" {
				t.Errorf("%q has no fix", got)
			}
		})
	}
}

// TestFaultOfBootTellsTheCause: of user data that failed the console's line before is told, which its script wrote.
func TestFaultOfBootTellsTheCause(t *testing.T) {
	console := "login:\nE: no such package\n\nFailed to run module scripts-user (scripts in /var/lib)\nRunning module scripts-user failed\n"
	if name, saw := faultOfBoot(Diagnosis{Console: console}); name != FaultUserData || saw != "E: no such package" {
		t.Errorf("got %q by %q", name, saw)
	}
}

// TestFaultOfNode: a node that nobody hears is told from one whose kubelet the kernel killed by the console.
func TestFaultOfNode(t *testing.T) {
	silent := Node{KubeletSilent: true, NotReadyWhy: "NodeStatusUnknown: Kubelet stopped posting node status."}
	if got, _ := faultOfNode(silent, "login:"); got != FaultKubelet {
		t.Errorf("silent: got %q", got)
	}
	if got, _ := faultOfNode(silent, "Memory cgroup out of memory: Killed process 7 (k3s-agent) total-vm:1kB\nlogin:"); got != FaultMemory {
		t.Errorf("killed: got %q", got)
	}
	if got, _ := faultOfNode(silent, "Memory cgroup out of memory: Killed process 9 (java) total-vm:1kB"); got != FaultKubelet {
		t.Errorf("silent, and a pod was killed before: got %q", got)
	}
	if got, saw := faultOfNode(Node{NotReadyWhy: "KubeletNotReady: container runtime is down"}, ""); got != FaultNotReady || !strings.Contains(saw, "runtime") {
		t.Errorf("without a runtime: got %q by %q", got, saw)
	}
}

// TestShortened: what a console says reaches people without its secrets, and with its end.
func TestShortened(t *testing.T) {
	got := shortened("muster: token=hunter2 " + strings.Repeat("x", 400) + " at its end")
	if strings.Contains(got, "hunter2") || !strings.HasSuffix(got, "at its end") || len(got) > 310 {
		t.Errorf("got %q", got)
	}
}

// TestShortenedRedacts: also a line that is short enough has its secrets taken out.
func TestShortenedRedacts(t *testing.T) {
	if got := shortened("muster: token=hunter2"); strings.Contains(got, "hunter2") || !strings.HasPrefix(got, "muster: token=") {
		t.Errorf("got %q", got)
	}
}

// moment is a clock that stands still.
type moment struct {
	SystemClock
	at time.Time
}

func (m moment) Now() time.Time { return m.at }

// TestFaultAfter: a fault is named before its instance is removed, and a boot is not called one because it is under way.
func TestFaultAfter(t *testing.T) {
	p := DefaultPolicy()
	if got := faultAfter(p); got != time.Minute {
		t.Errorf("got %s", got)
	}
	for _, tt := range []struct {
		name    string
		console string
		after   time.Duration
		want    FaultName
	}{
		{"it boots", "Booting Linux", 100 * time.Second, ""},
		{"it boots for long", "Booting Linux", 200 * time.Second, FaultBoot},
		{"its agent has begun", "muster: i-1 has started its K3s agent", 100 * time.Second, ""},
		{"its agent stays silent", "muster: i-1 has started its K3s agent", 200 * time.Second, FaultAgentSilent},
		{"its console names the cause", "write: no space left on device", 100 * time.Second, FaultDisk},
		{"the cause may be over soon", "write: no space left on device", 50 * time.Second, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			launched := time.Date(2026, 1, 31, 2, 10, 0, 0, time.UTC)
			w := Worker{Instance: Instance{ID: "i-1", State: StateRunning, ActionID: "a", LaunchedAt: launched}}
			v := surveyor{&run{
				config:    &Config{Policy: p, Clock: moment{at: launched.Add(tt.after)}},
				diagnosed: map[string]diagnosed{"i-1": {Diagnosis: Diagnosis{Console: tt.console}}},
			}}
			if got, saw := v.fault(t.Context(), w, &survey{}); got != tt.want {
				t.Errorf("got %q by %q, want %q", got, saw, tt.want)
			}
		})
	}
}
