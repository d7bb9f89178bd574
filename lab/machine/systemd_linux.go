package machine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// systemd is what a machine boots by, with the units of the machine that the lab runs on and
// cloud-init's.
const systemd = "/lib/systemd/systemd"

// maskedUnits are those for which a machine in namespaces has no hardware and no kernel of its
// own, and those that cost time and that no node needs.
var maskedUnits = []string{
	"systemd-sysctl.service", "systemd-modules-load.service", "systemd-binfmt.service", "systemd-random-seed.service", "systemd-timesyncd.service",
	"systemd-pstore.service", "systemd-remount-fs.service", "systemd-hwdb-update.service", "kmod-static-nodes.service", "systemd-sysusers.service",
	"systemd-udevd.service", "systemd-udev-trigger.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket",
	"systemd-logind.service", "systemd-networkd.service", "systemd-update-utmp.service", "systemd-update-utmp-runlevel.service",
	"systemd-journald-audit.socket", "dbus.service", "dbus.socket", "getty.target", "e2scrub_reap.service", "systemd-firstboot.service",
	"sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount", "sys-fs-fuse-connections.mount", "dev-hugepages.mount",
	"dev-mqueue.mount", "proc-sys-fs-binfmt_misc.automount", "proc-sys-fs-binfmt_misc.mount",
	"cloud-init-hotplugd.service", "cloud-init-hotplugd.socket",
}

// cloudConfig is added to Debian's configuration of cloud-init. The modules that are left out
// partition disks, and set up users, SSH and packages; the lab's network is there before.
const cloudConfig = `# Of the lab.
datasource_list: [ Ec2 ]
datasource: {Ec2: {metadata_urls: ["http://169.254.169.254"]}}
network: {config: disabled}
preserve_hostname: true
cloud_init_modules: [seed_random, bootcmd, write-files]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-vendor, scripts-per-once, scripts-per-boot, scripts-per-instance, scripts-user, final-message]
`

// kernelLog is a service that writes to the console what the kernel would write there.
const kernelLog = `[Unit]
Description=What the kernel writes to the console
DefaultDependencies=no
[Service]
Environment=%s=%s
ExecStart=` + Program + ` kernel-log
`

// writeSystemd adds what a root that boots by systemd has besides.
func (b *boot) writeSystemd() error {
	if err := copyTree(filepath.Join(b.CloudInit, "etc/cloud"), b.path("etc/cloud")); err != nil {
		return err
	}
	const units = "etc/systemd/system"
	for _, dir := range []string{units + "/sysinit.target.wants", units + "/cloud-init.target.wants", "etc/systemd/journald.conf.d"} {
		if err := os.MkdirAll(b.path(dir), 0o755); err != nil {
			return err
		}
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	files := map[string]string{
		// With an ID it is not the first boot, at which systemd would enable every unit that it finds.
		"etc/machine-id":                       hex.EncodeToString(id) + "\n",
		"etc/fstab":                            "",
		"etc/cloud/cloud.cfg.d/90-lab.cfg":     cloudConfig,
		"etc/systemd/journald.conf.d/lab.conf": "[Journal]\nStorage=volatile\nReadKMsg=no\n", // that log is not this machine's alone
		units + "/lab-kernel-log.service":      fmt.Sprintf(kernelLog, CgroupVariable, b.Cgroup),
	}
	links := map[string]string{units + "/sysinit.target.wants/lab-kernel-log.service": "/" + units + "/lab-kernel-log.service"}
	for _, unit := range maskedUnits {
		links[filepath.Join(units, unit)] = "/dev/null"
	}
	for _, stage := range []string{"cloud-init-local", "cloud-init", "cloud-config", "cloud-final"} { // as installing the package does
		links[units+"/cloud-init.target.wants/"+stage+".service"] = "/lib/systemd/system/" + stage + ".service"
	}
	var errs []error
	for name, text := range files {
		errs = append(errs, os.WriteFile(b.path(name), []byte(text), 0o644))
	}
	for name, to := range links {
		errs = append(errs, os.Symlink(to, b.path(name)))
	}
	return errors.Join(errs...)
}

// mountXen mounts /sys with a file more than the kernel shows here: the UUID by which
// cloud-init knows an instance of EC2 on Xen, so that it uses version 2 of the metadata
// service. The folders of the real one are bound beside it.
func (b *boot) mountXen() error {
	real, made := b.path("mnt"), b.path("sys")
	if err := errors.Join(mount("sysfs", real, ""), mount("tmpfs", made, "mode=755")); err != nil {
		return err
	}
	dirs, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		to := filepath.Join(made, d.Name())
		if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := bind(filepath.Join(real, d.Name()), to); err != nil {
			return err
		}
	}
	sum := sha256.Sum256([]byte(b.ID))
	h := hex.EncodeToString(sum[:])
	uuid := fmt.Sprintf("ec2%s-%s-%s-%s-%s\n", h[:5], h[5:9], h[9:13], h[13:17], h[17:29])
	hypervisor := filepath.Join(made, "hypervisor")
	return errors.Join(
		os.MkdirAll(hypervisor, 0o755),
		os.WriteFile(filepath.Join(hypervisor, "uuid"), []byte(uuid), 0o444),
		unix.Unmount(real, unix.MNT_DETACH))
}

// hideDHCP keeps cloud-init from asking for an address, which the machine has: no server
// would answer.
func (b *boot) hideDHCP() error {
	for _, name := range []string{"usr/sbin/dhclient", "usr/bin/dhclient"} {
		if _, err := os.Lstat(b.path(name)); err != nil {
			continue
		}
		if err := bind("/dev/null", b.path(name)); err != nil {
			return err
		}
	}
	return nil
}

// prepareSystemd keeps systemd from what would reach beyond the machine.
func (b *boot) prepareSystemd() error {
	var errs []error
	for _, capability := range []uintptr{unix.CAP_SYS_MODULE, unix.CAP_SYS_TIME} {
		errs = append(errs, unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0))
	}
	return errors.Join(append(errs, b.hideDHCP())...)
}

// systemdArguments are those of systemd, and what it looks for on the command line of a kernel.
// Left to itself it also mounts the hierarchy of cgroups version 2, of which the machine has no
// part of its own: it would leave its cgroups in that of the lab's machine.
var systemdArguments = []string{"systemd", "--system", "--unit=multi-user.target", "--show-status=error", "--log-target=journal", "--log-color=no",
	"systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=1"}

// execSystemd becomes systemd. It returns only if that fails.
func execSystemd() error {
	return unix.Exec(systemd, systemdArguments,
		[]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "TERM=dumb", "SYSTEMD_COLORS=0", "container=lab"})
}
