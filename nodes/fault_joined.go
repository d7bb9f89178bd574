package nodes

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Ending is a pod whose deletion has begun.
type Ending struct {
	Pod   string    `json:"pod"`             // namespace/name
	Until time.Time `json:"until"`           // when its grace is over and its containers are killed
	Grace int64     `json:"grace,omitempty"` // seconds
}

// slowAfter is the least time for which a pod may be ending before that is worth a name.
const slowAfter = 10 * time.Second

// slow says how a pod takes its time to end, "" if it does not. Neither the API nor a kubelet shows what it
// waits for: a container that ignores SIGTERM, one that is busy, and a preStop hook look alike.
func (e Ending) slow(now time.Time) string {
	grace := time.Duration(e.Grace) * time.Second
	told := now.Sub(e.Until.Add(-grace)).Round(time.Second)
	if e.Pod == "" || told < max(grace/2, slowAfter) {
		return ""
	}
	if late := now.Sub(e.Until).Round(time.Second); late > 0 {
		return fmt.Sprintf("pod %s was told to end %s ago, and its grace is over for %s", e.Pod, told, late)
	}
	return fmt.Sprintf("pod %s was told to end %s ago, and is killed after %s", e.Pod, told, grace)
}

// oldestKubelet is how many minor versions a kubelet may be older than its server
// (https://kubernetes.io/releases/version-skew-policy/#kubelet).
const oldestKubelet = 3

// skew says how a kubelet's version and its servers' don't go together, "" if they do or one is not known. The
// servers are nodes too: K3s is one program for both.
func skew(n Node, all []Node) string {
	major, minor, ok := minorOf(n.Kubelet)
	if !ok {
		return ""
	}
	for _, s := range all {
		serverMajor, serverMinor, known := minorOf(s.Kubelet)
		if !s.ControlPlane || !known {
			continue
		}
		tooNew := cmp.Or(cmp.Compare(major, serverMajor), cmp.Compare(minor, serverMinor)) > 0
		tooOld := major < serverMajor || minor < serverMinor-oldestKubelet
		if tooNew || tooOld {
			return fmt.Sprintf("its kubelet is of %s, server %s of %s", n.Kubelet, s.Name, s.Kubelet)
		}
	}
	return ""
}

// minorOf reads the major and the minor version of what Kubernetes calls v1.36.3+k3s1.
func minorOf(version string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second, _, _ := strings.Cut(rest, ".")
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil
}
