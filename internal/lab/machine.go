package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// PodImage is an image that every real node has. Its program says "up", and "SIGTERM" when
// that comes; it ends after the time that its arguments, "serve" and a duration, say.
const PodImage = "docker.io/lab/pod:1"

// Machine is a real machine, in namespaces, that a lab with Options.RealNodes boots.
type Machine struct {
	ID       string `json:"id"`       // small letters, digits and hyphens; its host name
	Memory   int64  `json:"memory"`   // bytes, 256 MiB or more
	CPUs     int    `json:"cpus"`     // that its pods may ask for, at most those of this machine; 0: all of those
	UserData string `json:"userData"` // the script that it runs when it has booted

	// What its metadata service says of it besides; the region's services have names in Region.
	Zone   string `json:"zone"`
	Region string `json:"region"`
	Type   string `json:"type"`

	// Systemd makes systemd its first process: cloud-init asks the metadata service for the user
	// data, which runs at the first boot only. It takes Options.Systemd. Without it a small
	// program runs the user data, and the machine is up seconds sooner.
	Systemd bool `json:"systemd"`
}

// MachineState is what there is to see of a Machine from outside.
type MachineState struct {
	Address string `json:"address"` // on the network of the lab's machines
	PID     int    `json:"pid"`     // of its first process
	Running bool   `json:"running"`
	Console string `json:"console"` // the last 64 KiB that were written to its console
}

// ErrNoMachine says that a lab has no machine of an ID.
var ErrNoMachine = errors.New("there is no such machine")

// Boot starts a machine and returns before it has booted.
func (l *Lab) Boot(ctx context.Context, m Machine) (MachineState, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return MachineState{}, err
	}
	s, err := l.ask(ctx, http.MethodPost, "", bytes.NewReader(body))
	if err != nil {
		return s, fmt.Errorf("booting machine %s: %w", m.ID, err)
	}
	return s, nil
}

// Reboot asks a machine that boots by systemd to reboot, and returns before it has. The error
// is ErrNoMachine if it was never started.
func (l *Lab) Reboot(ctx context.Context, id string) error {
	if _, err := l.ask(ctx, http.MethodPost, "/"+url.PathEscape(id)+"/reboot", nil); err != nil {
		return fmt.Errorf("rebooting machine %s: %w", id, err)
	}
	return nil
}

// Notices are what a machine's metadata service tells it of its end.
type Notices struct {
	Interruption time.Time `json:"interruption,omitzero"` // when it will be taken away; zero: nothing is told
	Rebalance    time.Time `json:"rebalance,omitzero"`    // when that was found to be likely; zero: nothing is told
}

// Notify adds notices to those that a machine's metadata service tells it. The error is
// ErrNoMachine if it was never started.
func (l *Lab) Notify(ctx context.Context, id string, n Notices) error {
	body, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if _, err := l.ask(ctx, http.MethodPut, "/"+url.PathEscape(id)+"/notices", bytes.NewReader(body)); err != nil {
		return fmt.Errorf("telling machine %s of its end: %w", id, err)
	}
	return nil
}

// Inspect returns the state of a machine, also of one that has ended. The error is
// ErrNoMachine if it was never started.
func (l *Lab) Inspect(ctx context.Context, id string) (MachineState, error) {
	s, err := l.ask(ctx, http.MethodGet, "/"+url.PathEscape(id), nil)
	if err != nil {
		return s, fmt.Errorf("looking at machine %s: %w", id, err)
	}
	return s, nil
}

// CutPower ends a machine, as when it disappears: nothing in it can react. It returns when
// all of its processes have ended. The error is ErrNoMachine if it was never started.
func (l *Lab) CutPower(ctx context.Context, id string) error {
	if _, err := l.ask(ctx, http.MethodDelete, "/"+url.PathEscape(id), nil); err != nil {
		return fmt.Errorf("cutting the power of machine %s: %w", id, err)
	}
	return nil
}

// ask talks to the lab's process about its machines.
func (l *Lab) ask(ctx context.Context, method, path string, body io.Reader) (s MachineState, err error) {
	socket := filepath.Join(l.dir, "machines.sock")
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	r, err := http.NewRequestWithContext(ctx, method, "http://lab/machines"+path, body)
	if err != nil {
		return s, err
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return s, fmt.Errorf("asking the lab, which has machines with Options.RealNodes only: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return s, err
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return s, json.Unmarshal(text, &s)
	case http.StatusNotFound:
		return s, ErrNoMachine
	default:
		return s, errors.New(strings.TrimSpace(string(text)))
	}
}

// sweep removes what the machines of a lab that was killed have left.
func (l *Lab) sweep() error {
	cmd := exec.Command(l.binary, "sweep") //nolint:noctx // it ends soon
	cmd.Env = os.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
