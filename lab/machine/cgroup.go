package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// hierarchy is one of the cgroup hierarchies of version 1.
type hierarchy struct {
	mount   string // where it is mounted
	options string // that mount it again elsewhere
	own     string // folder of the cgroup that this process is in
}

// hierarchies finds them by what the kernel says of the mounts and of this process.
func hierarchies() ([]hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	return parseHierarchies(string(mounts), string(groups), func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// parseHierarchies reads the kernel's tables. A process in a container may be in a cgroup
// whose path is not visible; then the root of what is mounted is its own.
func parseHierarchies(mounts, groups string, exists func(string) bool) ([]hierarchy, error) {
	paths := map[string]string{} // by controllers
	for line := range strings.Lines(groups) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			paths[f[1]] = f[2]
		}
	}
	var out []hierarchy
	for line := range strings.Lines(mounts) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(super) < 3 || super[0] != "cgroup" {
			continue
		}
		controllers := slices.DeleteFunc(strings.Split(super[2], ","), func(o string) bool {
			return o == "rw" || o == "ro" || o == "xattr" || o == "clone_children" || strings.HasPrefix(o, "release_agent=")
		})
		name := strings.Join(controllers, ",")
		h := hierarchy{mount: fields[4], options: name, own: fields[4]}
		if strings.HasPrefix(name, "name=") {
			h.options = "none," + name
		}
		if own := filepath.Join(h.mount, paths[name]); exists(own) {
			h.own = own
		}
		if !slices.ContainsFunc(out, func(o hierarchy) bool { return o.options == h.options }) {
			out = append(out, h)
		}
	}
	if !slices.ContainsFunc(out, func(h hierarchy) bool { return h.has("memory") }) {
		return nil, errors.New("the memory controller of cgroup version 1 is not mounted")
	}
	return out, nil
}

func (h hierarchy) has(controller string) bool {
	return slices.Contains(strings.Split(h.options, ","), controller)
}

// cgroups are those of all machines of a lab, below one name in each hierarchy.
type cgroups struct {
	name string
	all  []hierarchy
}

// add makes the cgroups of a machine with that memory, in bytes, and moves a process into them.
func (c cgroups) add(id string, memory int64, pid int) error {
	for _, h := range c.all {
		top := filepath.Join(h.own, c.name)
		g := filepath.Join(top, id)
		if err := os.MkdirAll(g, 0o755); err != nil {
			return err
		}
		if h.has("cpuset") { // a new one has no processors, and takes no process then
			for _, dir := range []string{top, g} {
				if err := inherit(dir, "cpuset.cpus", "cpuset.mems"); err != nil {
					return err
				}
			}
		}
		if h.has("memory") {
			if err := os.WriteFile(filepath.Join(g, "memory.limit_in_bytes"), []byte(strconv.FormatInt(memory, 10)), 0o644); err != nil {
				return fmt.Errorf("limiting its memory: %w", err)
			}
		}
		if err := os.WriteFile(filepath.Join(g, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("moving it into its cgroups: %w", err)
		}
	}
	return nil
}

// inherit copies settings from the parent cgroup where there are none.
func inherit(dir string, names ...string) error {
	for _, name := range names {
		set, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if strings.TrimSpace(string(set)) != "" {
			continue
		}
		above, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), above, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the cgroups of a machine whose processes have been killed, those of its
// containers included; with an empty ID, those of all machines.
func (c cgroups) remove(id string) error {
	var errs []error
	for _, h := range c.all {
		errs = append(errs, removeTree(filepath.Join(h.own, c.name, id)))
	}
	return errors.Join(errs...)
}

// dyingFor is how long the kernel may take to let go of the processes of a cgroup.
const dyingFor = 10 * time.Second

func removeTree(dir string) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := removeOnce(dir)
		if err == nil || time.Since(began) > dyingFor {
			return err
		}
	}
}

// removeOnce removes folders, the deepest first. The files in them go with them.
func removeOnce(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, d := range slices.Backward(dirs) {
		if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
