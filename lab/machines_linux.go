package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/lab/machine"
	"github.com/muster-dev/muster/lab/metadata"
)

// machines is the lab's real machines, and the address by which they are started and
// stopped: HTTP on a socket in the lab's folder.
type machines struct {
	fleet    *machine.Fleet
	services *services
	notices  *notices
	server   *http.Server
}

// k3sInstaller stands in for K3s' own: it makes the agent a service of systemd, as K3s' does.
// On a machine without systemd it starts the agent, and starts it again when it ends; the log
// is where K3s has it on such a machine. There is nowhere to download another version from.
const k3sInstaller = `#!/bin/sh
# Stands in for the installer of K3s: starts the agent, as its service would.
set -e
if [ -n "$INSTALL_K3S_VERSION" ]; then
	echo "[ERROR]  Download failed" >&2
	exit 1
fi
if [ -d /run/systemd/system ]; then
	cat >/etc/systemd/system/k3s-agent.service <<END
[Unit]
Description=Lightweight Kubernetes
Wants=network-online.target
After=network-online.target
[Install]
WantedBy=multi-user.target
[Service]
Type=exec
KillMode=process
Delegate=yes
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStart=/usr/local/bin/k3s $INSTALL_K3S_EXEC
END
	systemctl enable k3s-agent
	systemctl daemon-reload
	systemctl restart k3s-agent
	exit
fi
(while :; do
	/usr/local/bin/k3s $INSTALL_K3S_EXEC >>/var/log/k3s-agent.log 2>&1 || :
	echo "k3s has ended" >/dev/console
	sleep 5
done) </dev/null >/dev/null 2>&1 &
`

// startMachines prepares machines, and serves the socket by which they are started.
func startMachines(ctx context.Context, c *controlPlane, o machineSettings) (*machines, error) {
	dir := c.dir
	images, image := filepath.Join(dir, "images"), filepath.Join(dir, "image")
	if err := writeMachineImage(image, images, c.certificate()); err != nil {
		return nil, fmt.Errorf("making the machines' image: %w", err)
	}
	if err := addImages(images, o.images); err != nil {
		return nil, err
	}
	trust, err := os.ReadFile(c.authority.certificate)
	if err != nil {
		return nil, err
	}
	lower := []string{filepath.Join(image, "usr")}
	if o.runtime != "" {
		lower = append(lower, filepath.Join(o.runtime, "usr")) // before the packages: it hides theirs
	}
	lower = append(lower, filepath.Join(o.packages, "usr"))
	fleet, err := machine.New(machine.Options{Network: c.network, Images: images, Share: o.share, Trust: string(trust), Domain: metadata.Domain, CloudInit: o.cloud, Lower: lower})
	if err != nil {
		return nil, err
	}
	told := &notices{}
	s, err := startServices(ctx, c.network, fleet, told, c.authority, o)
	if err != nil {
		return nil, errors.Join(err, fleet.Close())
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", filepath.Join(dir, "machines.sock"))
	if err != nil {
		return nil, errors.Join(err, s.close(), fleet.Close())
	}
	m := &machines{fleet: fleet, services: s, notices: told}
	m.server = &http.Server{Handler: m.handler(), ReadHeaderTimeout: time.Second}
	go func() { _ = m.server.Serve(l) }()
	return m, nil
}

// writeMachineImage writes what a machine image brings beside the packages: K3s' names, and
// the container images.
func writeMachineImage(image, images, certificate string) error {
	bin, ca := filepath.Join(image, "usr", "local", "bin"), filepath.Join(image, apiCertificate)
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.MkdirAll(filepath.Dir(ca), 0o755), os.MkdirAll(images, 0o755)); err != nil {
		return err
	}
	trusted, err := os.ReadFile(certificate)
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return errors.Join(
		os.Symlink(machine.Program, filepath.Join(bin, "k3s")),
		os.WriteFile(filepath.Join(bin, "k3s-install.sh"), []byte(k3sInstaller), 0o755),
		os.WriteFile(ca, trusted, 0o644),
		writeImages(filepath.Join(images, "pod.tar"), filepath.Join(filepath.Dir(program), "pod"),
			map[string][]string{pauseImage: {"pause"}, podImage: {"serve", "0s"}}))
}

// addImages puts further archives into the folder of images. They are linked there where
// that is possible: a copy of each is as large as the program in it.
func addImages(dir string, archives []string) error {
	for i, from := range archives {
		to := filepath.Join(dir, fmt.Sprintf("more-%d.tar", i))
		if os.Link(from, to) == nil {
			continue
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return fmt.Errorf("--image: %w", err)
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return fmt.Errorf("--image %s: %w", from, err)
		}
	}
	return nil
}

func (m *machines) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /machines", m.start)
	mux.HandleFunc("GET /machines/{id}", m.show)
	mux.HandleFunc("POST /machines/{id}/reboot", m.reboot)
	mux.HandleFunc("PUT /machines/{id}/notices", m.notify)
	mux.HandleFunc("DELETE /machines/{id}", m.stop)
	return mux
}

// shown is a machine as the lab's users see it.
type shown struct {
	Address string `json:"address"` // on the machines' network
	PID     int    `json:"pid"`     // of its first process, as the lab's machine sees it
	Running bool   `json:"running"`
	Console string `json:"console"` // the end of what was written to it
}

func answer(w http.ResponseWriter, m *machine.Machine, err error) {
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case m == nil:
		http.Error(w, "there is no such machine", http.StatusNotFound)
	default:
		_ = json.NewEncoder(w).Encode(shown{m.Address, m.PID(), m.Running(), m.Output()}) // the client may have gone
	}
}

func (m *machines) start(w http.ResponseWriter, r *http.Request) {
	var s machine.Spec
	if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
		answer(w, nil, err)
		return
	}
	started, err := m.fleet.Start(s)
	answer(w, started, err)
}

func (m *machines) show(w http.ResponseWriter, r *http.Request) {
	answer(w, m.fleet.Find(r.PathValue("id")), nil)
}

func (m *machines) reboot(w http.ResponseWriter, r *http.Request) {
	found := m.fleet.Find(r.PathValue("id"))
	if found == nil {
		answer(w, nil, nil)
		return
	}
	answer(w, found, m.fleet.Reboot(r.PathValue("id")))
}

func (m *machines) stop(w http.ResponseWriter, r *http.Request) {
	found := m.fleet.Find(r.PathValue("id"))
	if found == nil {
		answer(w, nil, nil)
		return
	}
	answer(w, found, m.fleet.Stop(r.PathValue("id")))
}

// close stops all machines.
func (m *machines) close() error {
	return errors.Join(m.server.Close(), m.services.close(), m.fleet.Close())
}
