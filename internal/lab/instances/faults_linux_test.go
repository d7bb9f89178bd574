package instances_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/internal/lab"
	"github.com/muster-dev/muster/internal/lab/instances"
	"github.com/muster-dev/muster/internal/lab/labtest"
	"github.com/muster-dev/muster/internal/lab/machines"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/ec2"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/region"
)

var allFaults = flag.Bool("faults.all", false, "break real nodes also after they have joined, which takes minutes more")

var faultTable = flag.String("faults.table", "", "write the table of faults on real nodes to this file")

// fault is something that goes wrong with a real node.
type fault struct {
	what string                              // in the table
	want nodes.FaultName                     // by which it is to be explained
	boot func(*lab.Machine)                  // makes a machine that has it; nil: it comes later
	do   func(*testing.T, *faultRig, string) // brings it about on an instance; nil: boot does

	instance string
	since    time.Time // it was brought about
	named    time.Duration
	repaired time.Duration
	saw      string
}

// faultRig is a node plane whose workers are real nodes, some of them with faults.
type faultRig struct {
	region   *region.Region
	lab      *lab.Lab
	kube     *kubernetes.Clientset
	server   passwords
	machines *machines.Machines
	account  *rest.Config
	config   nodes.Config
	plane    *nodes.Reconciler

	mu      sync.Mutex
	pending []*fault // of the next machines
}

// The node plane's times in these tests. Those that a fault is named and repaired after
// depend on them.
const (
	testJoinTimeout = 90 * time.Second
	testNotReady    = 60 * time.Second // the least that the policy allows
)

func faultPolicy(workers int) nodes.Policy {
	p := nodes.DefaultPolicy()
	p.Cluster, p.MinWorkers, p.MaxWorkers, p.MaxBatchUp = "local", workers, 20, 20
	p.CooldownUp, p.CooldownDown, p.IdleDownFor = time.Second, time.Hour, time.Hour
	p.JoinTimeout, p.NotReadyFor, p.DrainTimeout, p.ScaleDownStuck = testJoinTimeout, testNotReady, 40*time.Second, 60*time.Second
	// An offering whose instances did not join is not tried again for minutes.
	p.InstanceTypes, p.Spot = []string{"t3.medium", "t3a.medium", "m5.large", "m5a.large", "m6i.large"}, false
	return p
}

func newFaultRig(t *testing.T, workers int, faults ...*fault) *faultRig {
	t.Helper()
	return newRigOf(t, false, workers, faults...)
}

// newSystemdRig returns one whose machines boot by systemd.
func newSystemdRig(t *testing.T, workers int, faults ...*fault) *faultRig {
	t.Helper()
	return newRigOf(t, true, workers, faults...)
}

func newRigOf(t *testing.T, systemd bool, workers int, faults ...*fault) *faultRig {
	t.Helper()
	r := &faultRig{pending: faults}
	booted := instances.New(instances.Options{Region: regionName, Prepare: r.prepare, Systemd: systemd})
	var err error
	r.region, err = region.Start(region.Options{Sim: sim.Options{Policy: faultPolicy(workers), Zones: []string{zone}}, Dir: t.TempDir(), Machines: booted})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.region.Close(), booted.Close()); err != nil {
			t.Error(err)
		}
	})
	if r.machines, err = machines.NewReal(r.region); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.machines.Close(); err != nil {
			t.Error(err)
		}
	})
	r.lab = labtest.Start(t, lab.Options{RealNodes: true, Systemd: systemd, AWS: r.region.AWSURL, Scrape: r.machines.Scrape(),
		Forward: map[string]string{tomorrowPort: startTomorrow(t)}})
	t.Cleanup(func() { // before the lab stops: a machine whose instance has ended may be on its way out
		if err := booted.Close(); err != nil {
			t.Error(err)
		}
	})
	admin, err := clientcmd.BuildConfigFromFlags("", r.lab.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if r.kube, err = kubernetes.NewForConfig(admin); err != nil {
		t.Fatal(err)
	}
	r.server = passwords{admin, r.lab.JoinToken, r.kube}
	booted.Attach(r.lab, r.region.Simulator)
	r.region.AWS.PutParameter(tokenName, r.lab.JoinToken)
	r.region.AWS.PutParameter(wrongTokenName, "abcdef.0123456789abcdef")
	if err := r.machines.Attach(r.lab); err != nil {
		t.Fatal(err)
	}
	r.config = r.configure(t)
	r.want(t, workers)
	return r
}

// configure returns the configuration of a node plane of real adapters, for which EC2 is
// simulated.
func (r *faultRig) configure(t *testing.T) nodes.Config {
	t.Helper()
	config, err := r.region.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config.Cloud, config.Template, err = r.region.CloudWith(func(o *ec2.Config) {
		o.InstanceTypes = config.Policy.InstanceTypes
		o.UserData, o.Join = ec2.UserDataK3s, ec2.Join{Server: r.lab.Server, TokenRef: "ssm:" + tokenName}
	})
	if err != nil {
		t.Fatal(err)
	}
	account, err := r.machines.Account(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.account = account
	if config.Cluster, err = kube.New(account, kube.Options{}); err != nil {
		t.Fatal(err)
	}
	return config
}

// want has the node plane keep another number of workers.
func (r *faultRig) want(t *testing.T, workers int) {
	t.Helper()
	r.keep(t, faultPolicy(workers))
}

// keep has the node plane follow another policy.
func (r *faultRig) keep(t *testing.T, p nodes.Policy) {
	t.Helper()
	r.config.Policy = p
	var err error
	if r.config.Signals, err = r.machines.Signals(t.Context(), p); err != nil { // it asks for how long the CPU was idle
		t.Fatal(err)
	}
	if r.plane, err = nodes.New(r.config); err != nil {
		t.Fatal(err)
	}
}

// prepare gives the next machine its fault.
func (r *faultRig) prepare(m *lab.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return
	}
	f := r.pending[0]
	r.pending = r.pending[1:]
	f.instance, f.since = m.ID, time.Now()
	if f.boot != nil {
		f.boot(m)
	}
}

// tick lets the node plane work once a second until something holds of what it explains.
func (r *faultRig) tick(t *testing.T, what string, until func(text string, page console.NodePlane) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	for {
		report, err := r.plane.Tick(ctx)
		for _, e := range report.Events {
			if e.Kind != "decision" && e.Kind != "tick" && e.Kind != "scaleUp.waiting" && e.Kind != "scaleUp.disagreement" {
				t.Logf("%s %s %s %.200s", e.At.Format("04:05"), e.Kind, e.Instance, e.Message)
			}
		}
		text, page := r.explained(t, report)
		holds := until(text, page)
		if holds == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v; the last tick: %v, explained as\n%s", what, holds, err, text)
		case <-time.After(time.Second):
		}
	}
}

// explained returns what `muster nodes explain` writes about a tick, and what the console
// shows.
func (r *faultRig) explained(t *testing.T, report nodes.Report) (string, console.NodePlane) {
	t.Helper()
	tick, err := explain.About(new(connect.Deciders).For, report.Events)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := explain.WriteTick(&b, explain.Style{}, tick, time.Now()); err != nil {
		t.Fatal(err)
	}
	if tick.Snapshot == nil {
		return b.String(), console.NodePlane{}
	}
	return b.String(), console.NodePlaneOf(*tick.Snapshot, nil)
}

// names waits until every fault is named, by the explanation and by the console.
func (r *faultRig) names(t *testing.T, faults ...*fault) {
	t.Helper()
	r.tick(t, "naming faults", func(text string, page console.NodePlane) error {
		var missing []error
		for _, f := range faults {
			if f.named == 0 {
				f.look(text, page)
			}
			if f.named == 0 {
				missing = append(missing, fmt.Errorf("%s (%s) is not named %s", f.what, f.instance, f.want))
			}
		}
		return errors.Join(missing...)
	})
}

// look notes when the fault is named.
func (f *fault) look(text string, page console.NodePlane) {
	explained := false
	for line := range strings.Lines(text) {
		if strings.Contains(line, f.instance) && strings.Contains(line, "  "+string(f.want)+"  ") {
			explained = true
			f.saw = strings.TrimSpace(line)
		}
	}
	for _, n := range page.Nodes {
		if n.Instance == f.instance && n.Fault == string(f.want) && explained {
			f.named = time.Since(f.since)
		}
	}
}

// repairs waits until the faults' instances are gone, with their machines and nodes, and as
// many workers as wanted are Ready.
func (r *faultRig) repairs(t *testing.T, workers int, faults ...*fault) {
	t.Helper()
	r.tick(t, "repairing", func(string, console.NodePlane) error {
		fleet := r.machines.Fleet()
		for _, f := range faults {
			s, err := r.lab.Inspect(t.Context(), f.instance)
			if err != nil {
				return err
			}
			if s.Running || r.region.Simulator.Instance(f.instance).Alive() {
				return fmt.Errorf("%s (%s) runs", f.what, f.instance)
			}
		}
		if fleet.Available < workers || fleet.StaleNodes > 0 || fleet.Alive != fleet.Ready {
			return fmt.Errorf("the fleet is %+v", fleet)
		}
		for _, f := range faults {
			f.repaired = time.Since(f.since)
		}
		return nil
	})
}

// nothingLeft checks that the record has nothing of what is over.
func (r *faultRig) nothingLeft(t *testing.T) {
	t.Helper()
	r.tick(t, "coming to rest", func(string, console.NodePlane) error {
		record, err := r.config.Store.Load(t.Context())
		switch {
		case err != nil:
			return err
		case record.ScalingInProgress || len(record.Removals) > 0:
			return fmt.Errorf("the record has %v and removals %+v", record.Actions(), record.Removals)
		case len(record.Joined) != r.machines.Fleet().Ready:
			return fmt.Errorf("the record remembers %v", record.Joined)
		}
		return nil
	})
}

// hand is the begin of user data by which a test can have commands run on the machine later.
const hand = `#!/bin/bash
(while sleep 0.5; do [ -e /run/do ] && mv /run/do /run/done && bash /run/done; done) </dev/null >/dev/console 2>&1 &
`

// run has a machine run commands, in the background.
func (r *faultRig) run(t *testing.T, instance, commands string) {
	t.Helper()
	s, err := r.lab.Inspect(t.Context(), instance)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("/proc", fmt.Sprint(s.PID), "root/run")
	if err := os.WriteFile(filepath.Join(path, "do.new"), []byte(commands), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(path, "do.new"), filepath.Join(path, "do")); err != nil {
		t.Fatal(err)
	}
}

const wrongTokenName = "/muster/wrong-token"

// edit makes a boot that replaces a text of the user data.
func edit(old, with string) func(*lab.Machine) {
	return func(m *lab.Machine) {
		if !strings.Contains(m.UserData, old) {
			panic(old + " is not in the user data")
		}
		m.UserData = strings.Replace(m.UserData, old, with, 1)
	}
}

// readsToken makes a boot that reads another token.
func readsToken(name string) func(*lab.Machine) {
	return edit("token_name='"+tokenName+"'", "token_name='"+name+"'")
}

// tomorrowPort is where machines reach a server whose certificate is valid from tomorrow on:
// it is to them what the real one is to a machine whose clock is a day late. One kernel has
// one clock, so that a machine in namespaces can't have another.
const tomorrowPort = "7443"

// startTomorrow starts that server and returns its address.
func startTomorrow(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tomorrow"},
		NotBefore: time.Now().Add(24 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour), IPAddresses: []net.IP{net.ParseIP(lab.Gateway)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{MinVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

// joiningFaults are those of machines that never join.
func joiningFaults() []*fault {
	const begin = "set -euo pipefail\n"
	server := func(url string) func(*lab.Machine) {
		return edit("server='https://10.77.0.1:6443'", "server='"+url+"'")
	}
	return []*fault{
		{what: "disappears during its user data", want: nodes.FaultGone, boot: edit(begin, "sleep infinity\n"),
			do: func(_ *testing.T, r *faultRig, id string) { r.region.Simulator.TakeAway(id) }},
		{what: "boot hangs", want: nodes.FaultBoot, boot: edit(begin, "sleep infinity\n")},
		{what: "name of an earlier machine, with a stale node-password", want: nodes.FaultNameTaken, boot: edit("node-name: $id", "node-name: "+retired)},
		{what: "wrong token", want: nodes.FaultToken, boot: readsToken(wrongTokenName)},
		{what: "token that its role can't read", want: nodes.FaultTokenUnreadable, boot: readsToken("/muster/absent")},
		{what: "disk full while it joins", want: nodes.FaultDisk, boot: edit(begin, begin+"mkdir -p /etc/rancher; mount -t tmpfs -o size=4k full /etc/rancher\n")},
		{what: "K3s version that does not exist", want: nodes.FaultInstall, boot: edit("k3s_version=''", "k3s_version='v9.9.9+k3s1'")},
		{what: "clock a day late (see below)", want: nodes.FaultClock, boot: server("https://" + lab.Gateway + ":" + tomorrowPort)},
		{what: "no way to the server", want: nodes.FaultServer, boot: server("https://10.77.0.250:6443")},
	}
}

// TestRealNodes_faults breaks real nodes. ` + "`muster nodes explain`" + ` names what is wrong with
// each, as the console does, and the node plane replaces it.
func TestRealNodes_faults(t *testing.T) {
	const healthy = 4
	joining := joiningFaults()
	var workers []*fault
	for range healthy {
		workers = append(workers, &fault{boot: func(m *lab.Machine) { m.UserData = hand + m.UserData }})
	}
	r := newFaultRig(t, healthy+len(joining), append(slices.Clone(workers), joining...)...)
	if err := r.server.register(t.Context(), retired); err != nil { // as an earlier machine did
		t.Fatal(err)
	}
	r.launched(t)
	for _, f := range joining {
		if f.do != nil {
			f.since = time.Now()
			f.do(t, r, f.instance)
		}
	}
	r.names(t, joining...)
	r.want(t, healthy)
	r.repairs(t, healthy, joining...)

	all := joining
	brk := func(i int, what string, want nodes.FaultName, commands string) {
		f := &fault{what: what, want: want, instance: workers[i].instance, since: time.Now()}
		r.run(t, f.instance, commands)
		r.names(t, f)
		r.repairs(t, healthy, f)
		all = append(all, f)
	}
	const notAgain = "pkill -f k3s-install.sh\n"
	if *allFaults {
		brk(0, "kubelet killed, and not started again", nodes.FaultKubelet, killKubelet)
		brk(1, "network cut off", nodes.FaultKubelet, "ip link set eth0 down\n")
		brk(2, "kubelet killed for the memory that others use", nodes.FaultMemory,
			notAgain+"for p in $(pgrep -f 'lab kubelet'); do echo 1000 >/proc/$p/oom_score_adj; done\ntail /dev/zero\n")
		full := &fault{what: "memory used up, and the node drained then", want: nodes.FaultPressure, instance: workers[3].instance}
		r.pressed(t, full, "dd if=/dev/zero of=/dev/shm/fill bs=1M count=1880\n", "rm /dev/shm/fill\n")
		all = append(all, full)
	}
	r.nothingLeft(t)
	r.passwordsLeft(t)
	told(t, all)
	if *faultTable != "" {
		writeFaults(t, *faultTable, faultsTable, all)
	}
}

// told logs how faults were named and repaired.
func told(t *testing.T, faults []*fault) {
	t.Helper()
	for _, f := range faults {
		t.Logf("%s: named after %.1f s, repaired after %.1f s: %s", f.what, f.named.Seconds(), f.repaired.Seconds(), f.saw)
	}
}

// launched waits until every machine that is to have a fault was launched.
func (r *faultRig) launched(t *testing.T) {
	t.Helper()
	r.tick(t, "launching", func(string, console.NodePlane) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.pending) > 0 {
			return fmt.Errorf("%d are to be launched", len(r.pending))
		}
		return nil
	})
}

// pressed uses up the memory or the disk of a node and drains it then. The kubelet evicts pods
// at the same time, and the drain ends all the same.
func (r *faultRig) pressed(t *testing.T, f *fault, use, free string) {
	t.Helper()
	id := f.instance
	const grace = 15
	seconds := int64(grace)
	labtest.Create(t, r.kube.CoreV1().Pods("default").Create, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "stubborn"},
		Spec: corev1.PodSpec{NodeName: id, TerminationGracePeriodSeconds: &seconds,
			Containers: []corev1.Container{{Name: "pod", Image: lab.PodImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/pod", "serve", "1h"}}}},
	})
	labtest.Eventually(t, "the pod", func() error {
		p, err := r.kube.CoreV1().Pods("default").Get(t.Context(), "stubborn", metav1.GetOptions{})
		if err == nil && p.Status.Phase != corev1.PodRunning {
			err = errors.New("it does not run")
		}
		return err
	})
	n, err := r.kube.CoreV1().Nodes().Get(t.Context(), id, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	f.since = time.Now()
	r.run(t, id, use)
	r.names(t, f)
	ref := nodes.NodeRef{Name: id, UID: string(n.UID)}
	if err := r.config.Cluster.Cordon(t.Context(), ref, "test"); err != nil {
		t.Fatal(err)
	}
	drainer, err := kube.New(r.account, kube.Options{Drain: kube.Rules{BarePods: kube.Evict}})
	if err != nil {
		t.Fatal(err)
	}
	labtest.Eventually(t, "the drain", func() error {
		p, err := drainer.Drain(t.Context(), nodes.DrainRequest{Node: ref, Until: time.Now().Add(2 * time.Second)})
		if err == nil && !p.Done {
			err = fmt.Errorf("%d left: %s", p.Left, p.Why)
		}
		return err
	})
	f.repaired = time.Since(f.since)
	r.run(t, id, free)
	if err := r.config.Cluster.Uncordon(t.Context(), ref, "test"); err != nil {
		t.Fatal(err)
	}
}

// table is a page about faults.
type table struct{ head, foot string }

var faultsTable = table{`# Faults on real nodes

Written by ` + "`go test ./internal/lab/instances -run RealNodes_faults$ -faults.all -faults.table $PWD/docs/results/node-faults.md`" + `: real kubelets on machines in namespaces, one run. Settings: ` + fmt.Sprintf("JOIN_TIMEOUT_SEC=%d, NOT_READY_TIMEOUT_SEC=%d", int(testJoinTimeout.Seconds()), int(testNotReady.Seconds())) + `, one tick a second. Times count from the launch or from the fault.`, `
"Repaired" means that the instance, its machine and its node are gone, and as many workers as before are Ready; at the end of the run the record has nothing of them. Of a node under pressure it means that its drain has ended.

The late clock is made by a server whose certificate is valid from tomorrow on: machines in namespaces share one clock. K3s' server, which checks node passwords, is a stand-in; it keeps their hashes in K3s' secrets and answers in K3s' words.
`}

var joinedTable = table{`# Faults of nodes that have joined

Written by ` + "`go test ./internal/lab/instances -run RealNodes_faultsJoined -faults.table $PWD/docs/results/node-faults-joined.md`" + `, as [node-faults.md](node-faults.md) is.`, `
A slow pod is counted from its SIGTERM and named when half of its grace is over; then its container is killed and its node removed. The disk is the kubelet's own, of 200 MB, and repaired means that the drain has ended, or that the node is replaced. The version is a changed text in the program of the kubelet; such a node stays, because it works.
`}

// writeFaults writes a table for people.
func writeFaults(t *testing.T, path string, page table, faults []*fault) {
	t.Helper()
	var b strings.Builder
	b.WriteString(page.head + "\n\n| fault | named | after | repaired after |\n| --- | --- | --- | --- |\n")
	for _, f := range faults {
		repaired := "stays"
		if f.repaired > 0 {
			repaired = fmt.Sprintf("%.0f s", f.repaired.Seconds())
		}
		fmt.Fprintf(&b, "| %s | %s | %.0f s | %s |\n", f.what, f.want, f.named.Seconds(), repaired)
	}
	b.WriteString(page.foot)
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil { //nolint:gosec // for everybody to read
		t.Fatal(err)
	}
}
