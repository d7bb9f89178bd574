package network_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/lab/network"
)

func newNetwork(t *testing.T) *network.Network {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("MUSTER_REQUIRE") == "all" {
			t.Fatal("a network namespace needs root, and MUSTER_REQUIRE=all asks for it")
		}
		t.Skip("a network namespace needs root")
	}
	n, err := network.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// serve answers every connection with a text.
func serve(l net.Listener, text string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		io.WriteString(c, text)
		c.Close()
	}
}

func read(t *testing.T, c net.Conn, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNetwork(t *testing.T) {
	n := newNetwork(t)
	l, err := n.Listen(t.Context(), network.Gateway+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serve(l, "inside")

	t.Run("it is reached from inside", func(t *testing.T) {
		c, err := n.Dial(t.Context(), "tcp", l.Addr().String())
		if got := read(t, c, err); got != "inside" {
			t.Errorf("got %q", got)
		}
	})

	t.Run("what is forwarded is reached from inside", func(t *testing.T) {
		outside, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer outside.Close()
		go serve(outside, "outside")
		f, err := n.Forward(t.Context(), network.Gateway+":4222", outside.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c, err := n.Dial(t.Context(), "tcp", network.Gateway+":4222")
		if got := read(t, c, err); got != "outside" {
			t.Errorf("got %q", got)
		}

		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if c, err := n.Dial(t.Context(), "tcp", network.Gateway+":4222"); err == nil {
			t.Error("it is reached after the end")
			c.Close()
		}
	})

	t.Run("the machine that it runs on sees nothing of it", func(t *testing.T) {
		all, err := net.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			if i.Name == "br0" {
				t.Error("the bridge is visible")
			}
		}
	})

	t.Run("a plugged machine reaches it, from its own address", func(t *testing.T) {
		runtime.LockOSThread() // it dies with the thread that starts it, and the network ends threads
		defer runtime.UnlockOSThread()
		sleeper := exec.Command("sleep", "1000")
		sleeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if err := sleeper.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { sleeper.Process.Kill(); sleeper.Wait() }()
		if err := n.Plug(7, sleeper.Process.Pid); err != nil {
			t.Fatal(err)
		}
		address, _ := network.Address(7)
		inside, err := n.Listen(t.Context(), network.Gateway+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer inside.Close()
		from := make(chan string, 1)
		go func() {
			c, err := inside.Accept()
			if err != nil {
				from <- err.Error()
				return
			}
			from <- c.RemoteAddr().String()
			c.Close()
		}()
		dial := exec.Command("nsenter", "--net=/proc/"+strconv.Itoa(sleeper.Process.Pid)+"/ns/net", "bash", "-c",
			"exec 3<>/dev/tcp/"+strings.Replace(inside.Addr().String(), ":", "/", 1))
		if out, err := dial.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := <-from; !strings.HasPrefix(got, address+":") {
			t.Errorf("it came from %s, not from %s", got, address)
		}
	})
}

func TestMerge(t *testing.T) {
	var listen net.ListenConfig
	var ls []net.Listener
	for range 2 {
		l, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, l)
	}
	m := network.Merge(ls[0], ls[1])
	go serve(m, "merged")
	for _, l := range ls {
		c, err := net.Dial("tcp", l.Addr().String())
		if got := read(t, c, err); got != "merged" {
			t.Errorf("got %q from %s", got, l.Addr())
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted after the end: %v", err)
	}
	if _, err := net.Dial("tcp", ls[1].Addr().String()); err == nil {
		t.Error("it still listens after the end")
	}
}
