package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	bridge = "br0"
	// A bridge whose address is not fixed takes its smallest port's. A joining machine
	// changes it then, and the others talk to the old one until their caches expire, 13 s.
	bridgeMAC = "02:4d:75:73:74:01"
)

// Network is a bridge in a namespace of its own. It is made by New.
type Network struct {
	namespace *os.File // keeps the namespace, also when nothing runs in it
}

// New makes a network. It needs root and the program ip of iproute2.
func New() (*Network, error) {
	n := &Network{}
	err := onThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("making a network namespace: %w", err)
		}
		n.namespace, err = os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		return errors.Join(
			run("link", "set", "lo", "up"),
			run("link", "add", bridge, "address", bridgeMAC, "type", "bridge"),
			run("addr", "add", Gateway+"/24", "dev", bridge),
			run("addr", "add", Metadata+"/32", "dev", bridge),
			run("link", "set", bridge, "up"),
			forward())
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the machines' network: %w", errors.Join(err, n.Close()))
	}
	return n, nil
}

// Close forgets the network. The kernel removes it once no socket of it is open.
func (n *Network) Close() error {
	if n.namespace == nil {
		return nil
	}
	return n.namespace.Close()
}

// Listen listens on a TCP address of the network.
func (n *Network) Listen(ctx context.Context, address string) (l net.Listener, err error) {
	err = n.inside(func() error {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", address)
		return err
	})
	return l, err
}

// Dial connects to a literal address of the network. A host name would be resolved by
// another thread, which is outside.
func (n *Network) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = n.inside(func() error {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Plug connects a machine, whose first process is pid, in a network namespace of its own.
func (n *Network) Plug(number, pid int) error {
	address, pods := Address(number)
	port := "port" + strconv.Itoa(number)
	err := n.inside(func() error {
		return errors.Join(
			run("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid)),
			run("link", "set", port, "master", bridge, "up"),
			run("route", "replace", pods, "via", address))
	})
	if err != nil {
		return fmt.Errorf("plugging in machine %d: %w", number, err)
	}
	machine, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return fmt.Errorf("plugging in machine %d: %w", number, err)
	}
	err = (&Network{machine}).inside(func() error {
		return errors.Join(
			run("link", "set", "lo", "up"),
			run("addr", "add", address+"/24", "dev", "eth0"),
			run("link", "set", "eth0", "up"),
			run("route", "add", "default", "via", Gateway),
			forward())
	})
	if err := errors.Join(err, machine.Close()); err != nil {
		return fmt.Errorf("setting up the network of machine %d: %w", number, err)
	}
	return nil
}

// Unplug forgets the way to a machine's pods, and its port. That goes with the machine's
// namespace, too, but at a time of the kernel's choice, and a machine that boots again needs
// the name before.
func (n *Network) Unplug(number int) error {
	_, pods := Address(number)
	return n.inside(func() error {
		_ = run("link", "del", "port"+strconv.Itoa(number)) // it may be gone
		return run("route", "flush", pods)
	})
}

// inside runs f on a thread that is in the namespace.
func (n *Network) inside(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the machines' network: %w", err)
		}
		return f()
	})
}

// onThread runs f on a thread of its own, which may change namespaces: it is never unlocked,
// so the runtime ends it with the goroutine.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// run runs ip in the namespace of the calling thread.
func run(args ...string) error {
	out, err := exec.CommandContext(context.Background(), "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// forward lets packets through the namespace of the calling thread.
func forward() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0o644) }
