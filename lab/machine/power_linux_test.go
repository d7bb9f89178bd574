package machine

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// starting returns a function that starts a shell with a command.
func starting(command string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) {
		cmd := exec.Command("sh", "-c", command) //nolint:noctx // it ends by itself, or is killed
		return cmd, cmd.Start()
	}
}

func TestPower(t *testing.T) {
	// Where SIGHUP is ignored, as under nohup, the shell below would ignore it too, and could not change that.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	const (
		reboots = "kill -HUP $$" // as the kernel ends the first process of a namespace in which a process reboots
		works   = "sleep 1000"
	)
	for _, tt := range []struct {
		name, command string
		do            func(*power)
		again         bool
	}{
		{"it reboots", reboots, func(*power) {}, true},
		{"it ends", "exit 0", func(*power) {}, false},
		{"it fails", "exit 1", func(*power) {}, false},
		{"its power is cut", works, func(p *power) { p.off() }, false},
		{"it does not reboot when it is asked to", works, func(p *power) { p.restart(p.cmd) }, true},
		{"its power is cut then", works, func(p *power) { p.restart(p.cmd); p.off() }, false},
		{"it has rebooted when its time is over", "exit 0", func(p *power) { p.restart(nil) }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var p power
			if _, err := p.on(starting(tt.command)); err != nil {
				t.Fatal(err)
			}
			tt.do(&p)
			if got := p.wait(); got != tt.again {
				t.Errorf("it is to be started again: %v", got)
			}
		})
	}

	t.Run("a machine whose power was cut stays off", func(t *testing.T) {
		var p power
		if p.off() {
			t.Error("it was on")
		}
		if _, err := p.on(starting(works)); !errors.Is(err, errOff) || p.was() {
			t.Errorf("it was started: %v, %v", p.was(), err)
		}
		if _, err := p.press(); !errors.Is(err, errOff) {
			t.Errorf("it was asked to reboot: %v", err)
		}
	})
}
