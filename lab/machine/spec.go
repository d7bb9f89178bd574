// Package machine boots machines in namespaces: each has its own mounts, processes, network,
// host name and cgroups, runs what an instance's user data tells it, and is gone with its
// first process. Nothing of the machine that the lab runs on is changed.
package machine

// Spec is what a machine is made of.
type Spec struct {
	ID       string `json:"id"`       // its name and host name
	Memory   int64  `json:"memory"`   // bytes
	CPUs     int    `json:"cpus"`     // of those that the lab's machine has; 0: all of them
	UserData string `json:"userData"` // a script that it runs once it is up
	Zone     string `json:"zone"`     // of the cloud, which the machine is told
	Region   string `json:"region"`   // of the cloud; its services have names in it
	Type     string `json:"type"`     // of the instance
	Systemd  bool   `json:"systemd"`  // systemd is its first process, and cloud-init runs the user data
}

// boot is what the first process of a machine is told.
type boot struct {
	Spec
	Root    string   // the folder that becomes its /
	Lower   []string // folders that are merged into its /usr, the first before the others
	Program string   // the lab's own, which is bound to Program
	Images  string   // folder of image archives
	Share   string   // folder that is bound to the same path; empty: none is
	Hosts   string   // more lines of /etc/hosts
	Cgroup  string   // path of its cgroups below that of the lab, by which the kernel's log names it
	Trust   string   // certificates that it trusts beside those of the lab's machine

	CloudInit string // folder of cloud-init's packages, of a machine that boots by systemd
}

// CgroupVariable is the environment variable that tells the first process the path of the
// machine's cgroups. What it sees itself is the root of its namespace.
const CgroupVariable = "LAB_CGROUP"

// Where a machine finds things.
const (
	Program  = "/opt/lab/lab"
	Images   = "/opt/lab/images"
	UserData = "/var/lib/cloud/user-data"
	CPUs     = "/etc/lab/cpus" // how many are for pods; 0: all that there are
)
