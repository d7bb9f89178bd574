package partition

import (
	"fmt"

	"github.com/muster-dev/muster/partition/internal/record"
)

// peerSubject is where a worker is reached.
func peerSubject(group string, m record.Process) string {
	return fmt.Sprintf("muster.%s.worker.%s.%d", group, m.ID, m.Claim)
}

// peerSubjects covers the subjects of all workers of a group.
func peerSubjects(group string) string { return "muster." + group + ".worker.*.*" }

// drainSuffix follows the subject of a worker in that of requests to hand off.
const drainSuffix = ".drain"

func drainSubject(group string, m record.Process) string { return peerSubject(group, m) + drainSuffix }

// callSuffix follows the subject of a worker in that of calls of its keys.
const callSuffix = ".call"

func callSubject(group string, m record.Process) string { return peerSubject(group, m) + callSuffix }

// stateSuffix follows the subject of a worker in that of requests for the states of slots that it has
// handed off. Answers go to subjects below that of the worker that asks.
const stateSuffix = ".state"

func stateSubject(group string, m record.Process) string { return peerSubject(group, m) + stateSuffix }

// fenceSuffix follows the subject of a worker in that of reports of fence rejections.
const fenceSuffix = ".fence"

func fenceSubject(group string, m record.Process) string { return peerSubject(group, m) + fenceSuffix }
