package local

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/defender/service"
)

// Process is a defender that was started, as goroutines of this process or as a process of
// its own.
type Process struct {
	Name    string
	Options service.Options
	OS      *os.Process   // nil for goroutines
	Stop    func()        // gracefully
	Done    chan struct{} // closed when it has ended
	Err     error         // of its end, valid after Done
	Gather  func() ([]*dto.MetricFamily, error)

	kill  func() time.Time // at once; returns when it was gone
	mu    sync.Mutex
	gone  time.Time // when it was killed; zero: it was not
	again bool      // its pod starts it again when it fails
}

// Kill ends the defender at once, and returns when it was gone.
func (p *Process) Kill() time.Time {
	at := p.kill()
	p.Died(at)
	return at
}

// Died notes that the defender is gone since a moment. How it ended is no failure then.
func (p *Process) Died(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = at
}

// Gone returns when the defender was killed; zero if it was not.
func (p *Process) Gone() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// Ended reports whether the defender has ended, in whichever way.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// startsAgain notes that the defender's pod starts it again when it fails.
func (p *Process) startsAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = true
}

// failed returns the error of a defender that ended unasked. That a server did not answer in time is none if the pod starts it again:
// on Kubernetes nothing else would happen.
func (p *Process) failed() error {
	if !p.Ended() || !p.Gone().IsZero() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.again && errors.Is(p.Err, context.DeadlineExceeded) {
		return nil
	}
	return p.Err
}

// Defender is a defender that runs in this process.
type Defender interface {
	// Run works until ctx ends, leaves gracefully and closes everything.
	Run(ctx context.Context) error
	// Disconnect cuts the defender off for good, as a kill does.
	Disconnect()
	// Gather returns the defender's metrics.
	Gather() ([]*dto.MetricFamily, error)
}

// startHere starts a defender as goroutines of this process, with a connection of its own.
func startHere(o service.Options, d Defender) *Process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Process{Name: o.Pod, Options: o, Stop: cancel, Done: make(chan struct{}), Gather: d.Gather}
	p.kill = func() time.Time {
		// As near as a goroutine comes to kill -9: its connection is gone
		// at once, and nothing it still does reaches anybody.
		d.Disconnect()
		return time.Now()
	}
	go func() {
		defer close(p.Done)
		p.Err = d.Run(ctx)
	}()
	return p
}

// Launch says how a defender's process is started.
type Launch struct {
	Options service.Options
	Program string   // empty: this program
	Command []string // subcommand of the program, before the flags
	Flags   []string // added to those that the options stand for
	// Serve is the address of its metrics; empty: a free port of 127.0.0.1, and it ends with
	// its standard input.
	Serve string
	// Links is closed when the process has ended; nil for nothing.
	Links io.Closer
	// Killed reports whether an end that the stack didn't ask for is a kill, and no
	// failure of the defender; nil: it is a failure.
	Killed func(*os.ProcessState) bool
}

// startProcess starts a defender as a process of its own. It ends with its standard input,
// so it can't outlive this process.
func startProcess(ctx context.Context, l Launch) (*Process, error) {
	if l.Program == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("starting a defender process: %w", err)
		}
		l.Program = own
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), l.Program, l.Arguments()...)
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=2"), l.Options.User.Environ()...)
	return follow(cmd, l)
}

// Arguments are those of the process.
func (l Launch) Arguments() []string {
	o := l.Options
	args := append([]string{}, l.Command...)
	args = append(args, "--nats", o.NATS, "--store", o.Store, "--slots", strconv.Itoa(o.Slots), "--shards", strconv.Itoa(o.Shards), "--replicas", strconv.Itoa(o.Replicas),
		"--retry-attempts", strconv.Itoa(o.RetryAttempts), "--pod", o.Pod, "--node", o.Node, "--log-file", o.LogFile)
	if l.Serve != "" {
		args = append(args, "--http", l.Serve)
	} else {
		args = append(args, "--http", "127.0.0.1:0", "--child")
	}
	if o.LeaveTimeout > 0 {
		args = append(args, "--leave-timeout", o.LeaveTimeout.String())
	}
	if o.Verbose {
		args = append(args, "--verbose")
	}
	return append(args, l.Flags...)
}

// ready is the line that a defender's process writes first.
type ready struct {
	HTTP string `json:"http"`
}

// follow starts the process of a defender and follows it to its end.
func follow(cmd *exec.Cmd, l Launch) (*Process, error) {
	o := l.Options
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	stderr, err := os.OpenFile(o.LogFile+".stderr", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}
	cmd.Stderr = stderr
	if err := StartLowPriority(cmd); err != nil {
		return nil, fmt.Errorf("starting a defender process: %w", err)
	}

	var asked, killed atomic.Bool
	var address atomic.Pointer[string] // where it serves, which it says before it joins
	p := &Process{Name: o.Pod, Options: o, OS: cmd.Process, Done: make(chan struct{})}
	p.Stop = func() {
		asked.Store(true)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}
	p.kill = func() time.Time {
		killed.Store(true)
		_ = cmd.Process.Kill()
		at := time.Now()
		<-p.Done
		return at
	}
	p.Gather = func() ([]*dto.MetricFamily, error) {
		at := address.Load()
		if at == nil {
			return nil, ErrStarting
		}
		return scrape(*at)
	}

	go func() {
		defer close(p.Done)
		defer func() { _ = in.Close(); _ = stderr.Close() }()
		readAddress(out, &address)
		err := cmd.Wait()
		if l.Links != nil {
			_ = l.Links.Close()
		}
		switch {
		case err == nil || killed.Load():
		case asked.Load() && address.Load() == nil:
			// It had no time to see to an orderly end, and nothing to hand off.
		case l.Killed != nil && l.Killed(cmd.ProcessState):
			p.Died(time.Now())
		default:
			p.Err = fmt.Errorf("defender process %s: %w: %s", p.Name, err, lastWords(o.LogFile+".stderr", o.LogFile))
		}
	}()
	return p, nil
}

// readAddress reads what a process writes until it ends, and notes where it serves.
func readAddress(out io.Reader, address *atomic.Pointer[string]) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r ready
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.HTTP != "" {
			address.Store(&r.HTTP)
		}
	}
}

// lastWords returns the last line of the first of these files that has one. They may
// be gone with the stack's directory when a person looks for them.
func lastWords(files ...string) string {
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if lines := strings.Split(strings.TrimSpace(string(b)), "\n"); lines[len(lines)-1] != "" {
			return lines[len(lines)-1]
		}
	}
	return "it said nothing"
}

// ErrStarting is the error of asking a process that has not joined.
var ErrStarting = errors.New("the process has not said where it serves its metrics")
