package nodes

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"
)

// FaultName names what is wrong with a worker, in words that the documentation explains.
type FaultName string

// The faults of an instance that does not join, by its console, and of a node, by its conditions.
const (
	FaultTokenUnreadable FaultName = "token unreadable"
	FaultToken           FaultName = "wrong token"
	FaultNameTaken       FaultName = "node name taken"
	FaultClock           FaultName = "clock skew"
	FaultDisk            FaultName = "disk full"
	FaultInstall         FaultName = "K3s not installed"
	FaultMetadata        FaultName = "no instance metadata"
	FaultServer          FaultName = "server unreachable"
	FaultAgent           FaultName = "K3s agent fails"
	FaultAgentSilent     FaultName = "K3s agent silent"
	FaultUserData        FaultName = "user data failed"
	FaultBoot            FaultName = "boot hangs"
	FaultConsole         FaultName = "console unreadable"
	FaultGone            FaultName = "instance gone"
	FaultKubelet         FaultName = "kubelet silent"
	FaultMemory          FaultName = "out of memory"
	FaultNotReady        FaultName = "node not Ready"
	FaultPressure        FaultName = "under pressure"
	FaultEnding          FaultName = "pod slow to end"
	FaultVersion         FaultName = "version skew"
)

// Fault is what is wrong with a worker.
type Fault struct {
	InstanceID string    `json:"instanceId"`
	Name       FaultName `json:"name"`
	Saw        string    `json:"saw,omitempty"` // what shows it, redacted
}

// Fix says what to do about a fault.
func (n FaultName) Fix() string { return fixes[n] }

var fixes = map[FaultName]string{
	FaultTokenUnreadable: "let the instance's role read K3S_TOKEN_REF, and check that it exists in this region",
	FaultToken:           "store the server's current agent token where K3S_TOKEN_REF points",
	FaultNameTaken:       "delete the secret NAME.node-password.k3s in kube-system; user data of your own must not reuse node names",
	FaultClock:           "compare the machine's clock with the server's; if they agree, the server's certificate has expired",
	FaultDisk:            "give the launch template's root volume more space",
	FaultInstall:         "check K3S_VERSION, and that the subnet reaches get.k3s.io and github.com or the image brings K3s",
	FaultMetadata:        "let the launch template turn the instance metadata service on",
	FaultServer:          "check security groups, routes and K3S_URL: the machine must reach the server's port 6443",
	FaultAgent:           "read the agent's log on the machine: journalctl -u k3s-agent",
	FaultAgentSilent:     "read the agent's log on the machine: journalctl -u k3s-agent",
	FaultUserData:        "read its console: a script of the launch template ended with an error",
	FaultBoot:            "read its console: the join script has not come to its end. Check image and user data",
	FaultConsole:         "allow ec2:GetConsoleOutput",
	FaultGone:            "see the reason; what is missing is launched again",
	FaultKubelet:         "check the machine's network to the server, and its load; Muster removes it after NOT_READY_TIMEOUT_SEC",
	FaultMemory:          "reserve memory for the system (kubelet-arg=system-reserved), limit the pods' memory, or use a larger type",
	FaultNotReady:        "read the agent's log on the machine: journalctl -u k3s-agent",
	FaultPressure:        "the kubelet evicts pods; limit what they use, or use larger machines. Muster replaces one with a full disk after DISK_PRESSURE_TIMEOUT_SEC",
	FaultEnding:          "let its containers end on SIGTERM, or shorten terminationGracePeriodSeconds; beyond its grace look for a finalizer",
	FaultVersion:         "set K3S_VERSION to the server's: a kubelet must not be newer, nor older by more than three minor versions",
}

// consoleFault is what a line of a console says.
type consoleFault struct {
	name    FaultName
	pattern *regexp.Regexp
}

// consoleFaults are looked for in this order: a cause comes before what follows from it.
var consoleFaults = []consoleFault{
	{FaultDisk, regexp.MustCompile(`(?i)no space left on device`)},
	{FaultTokenUnreadable, regexp.MustCompile(`muster: the agent token can't be read`)},
	{FaultNameTaken, regexp.MustCompile(`(?i)node password rejected`)},
	{FaultClock, regexp.MustCompile(`(?i)certificate has expired or is not yet valid`)},
	{FaultToken, regexp.MustCompile(`(?i)unauthorized|not authorized|token CA hash does not match|token is not valid|invalid token`)},
	{FaultMemory, oomKill},
	{FaultInstall, regexp.MustCompile(`muster: the K3s installer (failed|can't be fetched)`)},
	{FaultMetadata, regexp.MustCompile(`muster: the instance metadata service does not answer`)},
	{FaultServer, regexp.MustCompile(`(?i)(has not joined yet).*(timeout|timed out|deadline exceeded|connection refused|no route to host|network is unreachable|no such host)`)},
	{FaultAgent, notJoined},
	{FaultUserData, userDataFailed},
	{FaultAgentSilent, regexp.MustCompile(`muster: \S+ has started its K3s agent`)},
}

var (
	notJoined = regexp.MustCompile(`muster: \S+ has not joined yet`)
	// A pod that its own limit killed leaves such a line, too. Without these processes there is no node.
	oomKill = regexp.MustCompile(`(?i)out of memory: killed process \d+ \((k3s|kubelet|containerd)`)
)

// faultOfBoot names why an instance has not joined, by its console. What the agent said last counts: what it
// said before may be over.
func faultOfBoot(d Diagnosis) (FaultName, string) {
	lines := strings.Split(d.Console, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if notJoined.MatchString(lines[i]) {
			lines = lines[i:]
			break
		}
	}
	for _, f := range consoleFaults {
		for i, line := range slices.Backward(lines) {
			switch {
			case !f.pattern.MatchString(line):
			case f.name == FaultUserData && i > 0:
				return f.name, lastLine(lines[:i])
			default:
				return f.name, line
			}
		}
	}
	return FaultBoot, lastLine(lines)
}

// userDataFailed is what cloud-init writes when a script has ended with an error. What the script wrote is before.
var userDataFailed = regexp.MustCompile(`Failed to run module scripts[-_]user`)

func lastLine(lines []string) string {
	for _, line := range slices.Backward(lines) {
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return "its console is empty"
}

// faultOfNode names why a node is not Ready, by its condition and the console of its instance. A kubelet that
// was killed looks like one that the network cuts off, except on the console.
func faultOfNode(n Node, console string) (FaultName, string) {
	for _, line := range slices.Backward(strings.Split(console, "\n")) {
		if oomKill.MatchString(line) {
			return FaultMemory, line
		}
	}
	if n.KubeletSilent {
		return FaultKubelet, n.NotReadyWhy
	}
	return FaultNotReady, n.NotReadyWhy
}

// faultOfJoined names what is wrong with a node whose kubelet answers. What changes by the minute comes before
// what stays.
func faultOfJoined(n Node, all []Node, now time.Time) (FaultName, string) {
	if n.Pressure != "" {
		return FaultPressure, n.Pressure
	}
	if saw := n.Ending.slow(now); saw != "" && n.Unschedulable {
		return FaultEnding, saw
	}
	if saw := skew(n, all); saw != "" {
		return FaultVersion, saw
	}
	return "", ""
}

// faultAfter is how long an instance has for its boot before it is asked why it does not join. It is a part of
// JOIN_TIMEOUT_SEC, so that a fault is named long before its instance is removed.
func faultAfter(p Policy) time.Duration { return p.JoinTimeout / 10 }

// slowBootAfter is how long an instance has whose console names no cause. Until then nothing tells it from one that comes up
// well: with JOIN_TIMEOUT_SEC=600 a boot of 90 s is an ordinary one.
func slowBootAfter(p Policy) time.Duration { return p.JoinTimeout / 4 }

// namesCause reports whether a fault is more than that an instance has not joined.
func (n FaultName) namesCause() bool { return n != FaultBoot && n != FaultAgentSilent }

// faultsAsked is the most consoles that are read at one observation. With many faults at once the cause is
// mostly the same.
const faultsAsked = 10

// faults finds out what is wrong with the workers that a survey shows. It is for people: failing at it
// changes nothing, and no decision depends on it.
func (v surveyor) faults(ctx context.Context, s *survey) []Fault {
	if s.cloudErr != nil || s.viewErr != nil {
		return nil
	}
	var out []Fault
	for _, w := range s.workers {
		if name, saw := v.fault(ctx, w, s); name != "" {
			out = append(out, Fault{InstanceID: w.Instance.ID, Name: name, Saw: shortened(saw)})
		}
	}
	return out
}

// fault names what is wrong with one worker; "" is nothing.
func (v surveyor) fault(ctx context.Context, w Worker, s *survey) (FaultName, string) {
	in, now := w.Instance, v.now()
	switch {
	case !in.Alive() && w.Node == nil && s.record.Launched(in.ID):
		d, _ := v.diagnosis(ctx, in.ID)
		return FaultGone, strings.TrimSpace(string(in.State) + " " + d.Reason)
	case !in.Alive():
		return "", "" // it is on its way out
	case w.Node == nil && (in.ActionID == "" || now.Sub(in.LaunchedAt) < faultAfter(v.config.Policy)):
		return "", ""
	case w.Node == nil:
		d, err := v.diagnosis(ctx, in.ID)
		switch {
		case errors.Is(err, errNotAsked):
			return "", ""
		case err != nil:
			return FaultConsole, err.Error()
		}
		name, saw := faultOfBoot(d)
		if !name.namesCause() && now.Sub(in.LaunchedAt) < slowBootAfter(v.config.Policy) {
			return "", ""
		}
		return name, saw
	case !w.Node.Ready && (w.Node.KubeletSilent || now.Sub(w.Node.notReadySince(now)) >= faultAfter(v.config.Policy)):
		d, _ := v.diagnosis(ctx, in.ID) // its console adds to what its node says
		return faultOfNode(*w.Node, d.Console)
	}
	return faultOfJoined(*w.Node, s.view.Nodes, now)
}

// diagnosis asks the cloud about an instance, once in a run.
func (v surveyor) diagnosis(ctx context.Context, id string) (Diagnosis, error) {
	if d, ok := v.diagnosed[id]; ok {
		return d.Diagnosis, d.err
	}
	if len(v.diagnosed) >= faultsAsked || v.budget.spent(ctx) {
		return Diagnosis{}, errNotAsked
	}
	var d diagnosed
	d.err = v.calls.do(ctx, "diagnosing "+id, func(ctx context.Context) (err error) {
		d.Diagnosis, err = v.config.Cloud.Diagnose(ctx, id)
		return err
	})
	v.diagnosed[id] = d
	return d.Diagnosis, d.err
}

// errNotAsked says that the cloud was asked about enough instances.
var errNotAsked = errors.New("not asked")

// diagnosed is what the cloud answered about an instance.
type diagnosed struct {
	Diagnosis
	err error
}

// shortened redacts a line for people, and keeps its end, which has the cause.
func shortened(line string) string {
	const most = 300
	line = strings.TrimSpace(redact(strings.ToValidUTF8(line, "")))
	if len(line) > most {
		line = "..." + strings.ToValidUTF8(line[len(line)-most:], "")
	}
	return line
}

// Fault returns what is wrong with an instance; its name is "" if nothing is known to be.
func (o Observation) Fault(instanceID string) Fault {
	for _, f := range o.Faults {
		if f.InstanceID == instanceID {
			return f
		}
	}
	return Fault{InstanceID: instanceID}
}

// String returns the name with what shows the fault.
func (f Fault) String() string {
	return strings.TrimSuffix(cmp.Or(string(f.Name), "unknown")+": "+f.Saw, ": ")
}
