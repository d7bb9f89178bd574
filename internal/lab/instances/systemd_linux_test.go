package instances_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/ec2"
)

// ofMachine returns the path of a file of a machine that runs.
func (r *faultRig) ofMachine(t *testing.T, instance, path string) string {
	t.Helper()
	s, err := r.lab.Inspect(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/proc", fmt.Sprint(s.PID), "root", path)
}

// reads returns the text of a file of a machine, without space around it.
func (r *faultRig) reads(t *testing.T, instance, path string) string {
	t.Helper()
	text, err := os.ReadFile(r.ofMachine(t, instance, path))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// console returns what EC2 gives as the console of an instance.
func (r *faultRig) console(t *testing.T, instance string) string {
	t.Helper()
	d, err := r.config.Cloud.Diagnose(context.WithoutCancel(t.Context()), instance)
	if err != nil {
		t.Fatal(err)
	}
	return d.Console
}

// bootedAt returns when the machine of an instance has booted.
func (r *faultRig) bootedAt(t *testing.T, instance string) (time.Time, error) {
	t.Helper()
	info, err := os.Stat(r.ofMachine(t, instance, "run/systemd/system")) // on a file system that is made at each boot
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// reboots reboots an instance by the API of EC2, and waits until cloud-init has ended again
// and the new kubelet has reported its node Ready.
func (r *faultRig) reboots(t *testing.T, instance string) {
	t.Helper()
	before, err := r.bootedAt(t, instance)
	if err != nil {
		t.Fatal(err)
	}
	sdk := aws.Config{Region: regionName, BaseEndpoint: &r.region.AWSURL, Credentials: credentials.NewStaticCredentialsProvider("simulated", "simulated", "")}
	if _, err := awsec2.NewFromConfig(sdk, ec2.Options).RebootInstances(t.Context(), &awsec2.RebootInstancesInput{InstanceIds: []string{instance}}); err != nil {
		t.Fatal(err)
	}
	var now time.Time
	labtest.Eventually(t, "the second boot", func() (err error) {
		now, err = r.bootedAt(t, instance)
		if err == nil && now.Equal(before) {
			err = errors.New("it is in the first")
		}
		if err == nil {
			_, err = os.Stat(r.ofMachine(t, instance, "run/cloud-init/result.json")) // its last stage writes that
		}
		return err
	})
	labtest.Eventually(t, "node "+instance+" being Ready again", func() error {
		n, err := r.kube.CoreV1().Nodes().Get(t.Context(), instance, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && c.LastHeartbeatTime.After(now) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %+v; its console: %s", n.Status.Conditions, r.console(t, instance))
	})
}

// TestRealNodes_systemd launches instances whose machines boot by systemd. cloud-init asks the
// instance metadata service, version 2, and runs the user data of the launch, once.
func TestRealNodes_systemd(t *testing.T) {
	const begin = "set -euo pipefail\n"
	var healthy lab.Machine
	works := &fault{boot: func(m *lab.Machine) { healthy = *m }}
	fails := &fault{what: "user data that fails", want: nodes.FaultUserData, boot: edit(begin, begin+"echo no such package >&2\nexit 1\n")}
	// The join script reads the log of its agent from the journal.
	wrong := &fault{what: "wrong token", want: nodes.FaultToken, boot: readsToken(wrongTokenName)}
	r := newSystemdRig(t, 3, works, fails, wrong)
	p := faultPolicy(3)
	p.JoinTimeout = 3 * time.Minute // on a busy machine systemd takes longer than others have here
	r.keep(t, p)
	r.launched(t)
	r.names(t, fails, wrong)
	if !strings.HasSuffix(fails.saw, "no such package") {
		t.Errorf("what it has seen of the user data that failed: %q", fails.saw)
	}
	r.joinedAll(t, 1)
	id := works.instance
	for _, f := range []*fault{fails, wrong} {
		t.Logf("%s: named after %.1f s: %s", f.want, f.named.Seconds(), f.saw)
	}

	t.Run("systemd and cloud-init", func(t *testing.T) {
		if first := r.reads(t, id, "proc/1/comm"); first != "systemd" {
			t.Errorf("its first process is %s", first)
		}
		if got := r.reads(t, id, "var/lib/cloud/data/instance-id"); got != id {
			t.Errorf("cloud-init has got the ID %s", got)
		}
		if got := r.reads(t, id, "run/cloud-init/instance-data.json"); !strings.Contains(got, `"cloud_name": "aws"`) { // only there it asks with a session
			t.Errorf("cloud-init takes the cloud for another: %s", got)
		}
		if got := r.reads(t, id, "var/lib/cloud/instances/"+id+"/user-data.txt"); got != strings.TrimSpace(healthy.UserData) {
			t.Errorf("the launch had other user data than cloud-init: %s", got)
		}
		if !strings.Contains(healthy.UserData, "# Joins this machine to a K3s cluster as an agent.") {
			t.Error("that is not the join script")
		}
	})

	t.Run("the console has what the user data wrote", func(t *testing.T) {
		if got := r.console(t, id); !strings.Contains(got, "muster: "+id+" has started its K3s agent") {
			t.Errorf("got %s", got)
		}
	})

	t.Run("a reboot does not run the user data a second time", func(t *testing.T) {
		r.reboots(t, id)
		if n := strings.Count(r.console(t, id), "has started its K3s agent"); n != 1 {
			t.Errorf("its console has it %d times: %s", n, r.console(t, id))
		}
		if n := strings.Count(r.reads(t, id, "var/log/cloud-init.log"), "config-scripts-user already ran"); n != 1 {
			t.Errorf("cloud-init has seen %d times that it ran", n)
		}
	})

	t.Run("nothing is left of an instance that was terminated", func(t *testing.T) {
		if len(r.tracesOf(t, id)) < 2 {
			t.Error("no cgroup or no folder of a machine is seen, so none would be seen that is left")
		}
		if err := r.config.Cloud.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		labtest.Eventually(t, "everything to be gone", func() error {
			var errs []error
			for _, left := range r.tracesOf(t, id) {
				errs = append(errs, errors.New("left: "+left))
			}
			return errors.Join(errs...)
		})
	})
}

// tracesOf returns the cgroups of an instance's machine, in all hierarchies, and its folder.
// A cgroup can't be removed while there is a process in it, and with its processes end a
// machine's namespaces and mounts.
func (r *faultRig) tracesOf(t *testing.T, id string) []string {
	t.Helper()
	name := fmt.Sprintf("muster-machines-%d-", r.lab.PID())
	found, err := filepath.Glob(filepath.Join(os.TempDir(), name+"*", id))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == id && strings.Contains(path, name) {
			found = append(found, path)
		}
		return nil // one may go while it is looked at
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
