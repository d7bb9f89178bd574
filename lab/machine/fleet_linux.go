package machine

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/muster-dev/muster/lab/network"
)

// Options of a Fleet. Network, Lower and Images are required.
type Options struct {
	Network *network.Network
	Lower   []string // folders that are merged into the machines' /usr, the first before the others
	Images  string   // folder of image archives
	Share   string   // folder that all machines have at the same path, as a volume that they mount; empty: there is none
	Trust   string   // certificates, in PEM, that machines trust
	Domain  string   // of the region's services, SERVICE.REGION.Domain, which are at the gateway

	CloudInit string // folder of cloud-init's packages; empty: no machine can boot by systemd
}

// Fleet is the machines of a lab. It is made by New, and its methods may be called by
// several goroutines.
type Fleet struct {
	o       Options
	dir     string
	cgroups cgroups
	starts  chan func() // run by the one thread that starts machines

	mu       sync.Mutex
	machines map[string]*Machine // also those that ended
}

// Machine is a machine of a Fleet.
type Machine struct {
	Spec    Spec
	Address string // on the machines' network

	number  int
	dir     string
	console *console
	power   power
	ended   chan struct{} // closed when its first process has, and so all of them, and it does not boot again
}

// New returns a fleet without machines. It removes what a lab that was killed has left.
func New(o Options) (*Fleet, error) {
	if err := Sweep(); err != nil {
		return nil, err
	}
	name, err := ownName()
	if err != nil {
		return nil, err
	}
	all, err := hierarchies()
	if err != nil {
		return nil, fmt.Errorf("machines can't be had here: %w", err)
	}
	f := &Fleet{o: o, dir: filepath.Join(os.TempDir(), name), cgroups: cgroups{name, all}, starts: make(chan func()), machines: map[string]*Machine{}}
	if err := os.Mkdir(f.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder for the machines: %w", err)
	}
	go func() {
		// The kernel kills a machine when the thread that started it ends, so that no machine
		// outlives the lab. This thread ends with the process and never before.
		runtime.LockOSThread()
		for start := range f.starts {
			start()
		}
	}()
	return f, nil
}

// Start starts a machine. It returns when its first process runs, before it has booted.
func (f *Fleet) Start(s Spec) (*Machine, error) {
	m, err := f.reserve(s)
	if err != nil {
		return nil, err
	}
	if err := f.start(m); err != nil {
		return nil, fmt.Errorf("starting machine %s: %w", s.ID, errors.Join(err, f.Stop(s.ID), f.Forget(s.ID)))
	}
	return m, nil
}

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// reserve enters a machine, with the lowest number that no machine has.
func (f *Fleet) reserve(s Spec) (*Machine, error) {
	switch {
	case !validID.MatchString(s.ID):
		return nil, fmt.Errorf("machine %q: use small letters, digits and hyphens for its ID", s.ID)
	case s.Memory < 256<<20:
		return nil, fmt.Errorf("machine %s: %d bytes of memory are too little: give it 256 MiB or more", s.ID, s.Memory)
	case s.Systemd && f.o.CloudInit == "":
		return nil, fmt.Errorf("machine %s: the lab was started without cloud-init: give --cloud-init", s.ID)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.machines[s.ID] != nil {
		return nil, fmt.Errorf("machine %s was started before", s.ID)
	}
	used := map[int]bool{}
	for _, m := range f.machines {
		used[m.number] = true
	}
	number := 1
	for used[number] {
		number++
	}
	if number > 200 {
		return nil, fmt.Errorf("machine %s: there are 200 already", s.ID)
	}
	address, _ := network.Address(number)
	m := &Machine{Spec: s, Address: address, number: number, dir: filepath.Join(f.dir, s.ID), ended: make(chan struct{})}
	f.machines[s.ID] = m
	return m, nil
}

func (f *Fleet) start(m *Machine) error {
	if err := os.MkdirAll(m.root(), 0o755); err != nil {
		return err
	}
	console, err := newConsole()
	if err != nil {
		return err
	}
	m.console = console
	go console.read()
	err = f.boot(m)
	if m.power.was() {
		go f.watch(m)
	} else {
		console.hangUp()
	}
	return err
}

func (m *Machine) root() string { return filepath.Join(m.dir, "root") }

// boot starts the first process of a machine, places it, and tells it what to boot.
func (f *Fleet) boot(m *Machine) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	orders, send, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = send.Close() }()
	pid, err := m.power.on(func() (*exec.Cmd, error) { return f.launch(m, program, orders) })
	if err := errors.Join(err, orders.Close()); err != nil {
		return err
	}
	s := m.Spec
	if err := f.cgroups.add(s.ID, s.Memory, pid); err != nil {
		return err
	}
	if err := f.o.Network.Plug(m.number, pid); err != nil {
		return err
	}
	b := boot{Spec: s, Root: m.root(), Lower: f.o.Lower, Program: program, Images: f.o.Images, Share: f.o.Share,
		Cgroup: f.cgroups.name + "/" + s.ID, Trust: f.o.Trust}
	if s.Systemd {
		b.CloudInit = f.o.CloudInit
	}
	if s.Region != "" {
		for _, service := range []string{"ssm", "secretsmanager"} {
			b.Hosts += fmt.Sprintf("%s %s.%s.%s\n", network.Gateway, service, s.Region, f.o.Domain)
		}
	}
	return json.NewEncoder(send).Encode(b)
}

// launch starts the first process of a machine, which waits for its orders.
func (f *Fleet) launch(m *Machine, program string, orders *os.File) (*exec.Cmd, error) {
	slave := m.console.slave
	cmd := exec.Command(program, "machine") //nolint:noctx // it is stopped by Stop
	cmd.Env = []string{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.ExtraFiles = []*os.File{orders}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL, Setsid: true, Setctty: true,
	}
	started := make(chan error)
	f.starts <- func() { started <- cmd.Start() }
	return cmd, <-started
}

// watch waits for the end of a machine. One that reboots is started again, with the disk
// that it has and the console that it wrote to.
func (f *Fleet) watch(m *Machine) {
	for m.power.wait() {
		if err := f.again(m); err != nil {
			m.console.keep(fmt.Appendf(nil, "lab: the machine has not come back from a reboot: %v\r\n", err))
			m.power.off()
		}
	}
	m.console.hangUp()
	close(m.ended)
}

// again boots a machine whose processes have ended.
func (f *Fleet) again(m *Machine) error {
	if err := errors.Join(f.cgroups.remove(m.Spec.ID), f.o.Network.Unplug(m.number)); err != nil {
		return err
	}
	return f.boot(m)
}

// Find returns a machine, nil if there is none of that ID.
func (f *Fleet) Find(id string) *Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.machines[id]
}

// At returns the machine at an address, nil if none runs there.
func (f *Fleet) At(address string) *Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.machines {
		if m.Address == address {
			return m
		}
	}
	return nil
}

// Output returns the end of what the machine has written to its console.
func (m *Machine) Output() string { return m.console.output() }

// PID returns the number of its first process, as the lab's machine sees it.
func (m *Machine) PID() int { return m.power.pid() }

// Running reports whether the machine has not ended. One that reboots has not.
func (m *Machine) Running() bool {
	select {
	case <-m.ended:
		return false
	default:
		return true
	}
}

// Stop cuts a machine's power: nothing in it can react. It returns when all of its
// processes have ended and everything that it had is removed, but for its console's output.
func (f *Fleet) Stop(id string) error {
	m := f.Find(id)
	if m == nil {
		return fmt.Errorf("there is no machine %s", id)
	}
	if m.power.off() {
		<-m.ended
		<-m.console.done
	}
	err := errors.Join(f.cgroups.remove(id), f.o.Network.Unplug(m.number), os.RemoveAll(m.dir))
	if err != nil {
		return fmt.Errorf("removing machine %s: %w", id, err)
	}
	return nil
}

// Forget drops a machine that was stopped, so that another may have its number.
func (f *Fleet) Forget(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.machines[id]; m != nil && m.power.was() && m.Running() {
		return fmt.Errorf("machine %s runs", id)
	}
	delete(f.machines, id)
	return nil
}

// Close stops all machines and removes what the fleet has.
func (f *Fleet) Close() error {
	f.mu.Lock()
	var ids []string
	for id := range f.machines {
		ids = append(ids, id)
	}
	f.mu.Unlock()
	var running sync.WaitGroup
	errs := make([]error, len(ids))
	for i, id := range ids {
		running.Go(func() { errs[i] = f.Stop(id) })
	}
	running.Wait()
	return errors.Join(append(errs, f.cgroups.remove(""), os.RemoveAll(f.dir))...)
}

// prefix begins the names of what the machines of a lab have.
const prefix = "muster-machines-"

// ownName names what this process makes. The time of its start tells it from a later
// process with the same number.
func ownName() (string, error) {
	started, err := startOf(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d-%s", prefix, os.Getpid(), started), nil
}

// startOf returns when a process was started, in ticks since the kernel's start.
func startOf(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name of the program, in parentheses, may have spaces in it.
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat has too few fields", pid)
	}
	return fields[19], nil
}

// abandoned reports whether the process that made something of that name has ended.
func abandoned(name string) bool {
	number, started, ok := strings.Cut(strings.TrimPrefix(name, prefix), "-")
	pid, err := strconv.Atoi(number)
	if !ok || err != nil {
		return false
	}
	now, err := startOf(pid)
	return err != nil || now != started
}

// Sweep removes cgroups and folders of labs that were killed. Their machines died with
// them.
func Sweep() error {
	all, _ := hierarchies() // none where there can be no machines
	var errs []error
	for _, h := range all {
		found, err := filepath.Glob(filepath.Join(h.own, prefix+"*"))
		errs = append(errs, err)
		for _, dir := range found {
			if abandoned(filepath.Base(dir)) {
				errs = append(errs, removeTree(dir))
			}
		}
	}
	found, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	errs = append(errs, err)
	for _, dir := range found {
		if abandoned(filepath.Base(dir)) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing what a lab that was killed has left: %w", err)
	}
	return nil
}
