package handoff

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/component"
)

// workersSource is the program that the workers are threads of; its comments describe what
// it reads and prints.
//
//go:embed java/Workers.java
var workersSource []byte

// javaGroup is a consumer group of Kafka's own client. Its workers are in a process of their
// own, but for those that will crash: they are in another, which can be killed.
type javaGroup struct {
	*kafkaGroup
	dir       string // of the compiled program
	processes [2]*javaProcess
	workers   int

	mu   sync.Mutex
	owns [mostWorkers]int
}

func startJava(ctx context.Context, e env) (group, error) {
	common, err := newKafkaGroup(ctx, e)
	if err != nil {
		return nil, err
	}
	g := &javaGroup{kafkaGroup: common}
	if err := g.start(ctx); err != nil {
		g.stop()
		return nil, fmt.Errorf("starting the Java client: %w", err)
	}
	return g, nil
}

// java returns the settings of a member. By KIP-848 the broker rules its timers.
func (k kafkaSetting) java(url string) []string {
	settings := []string{"bootstrap.servers=" + url, "group.id=" + consumerGroup}
	if k.next {
		return append(settings, "group.protocol=consumer")
	}
	settings = append(settings, "group.protocol=classic", "partition.assignment.strategy=org.apache.kafka.clients.consumer.CooperativeStickyAssignor")
	if k.heartbeat > 0 {
		settings = append(settings,
			fmt.Sprintf("heartbeat.interval.ms=%d", k.heartbeat.Milliseconds()), fmt.Sprintf("session.timeout.ms=%d", k.session.Milliseconds()))
	}
	return settings
}

// start compiles the program and starts it twice.
func (g *javaGroup) start(ctx context.Context) (err error) {
	if g.dir, err = os.MkdirTemp("", "handoff-java-"); err != nil {
		return err
	}
	kafka, err := component.Kafka().Install(ctx)
	if err != nil {
		return err
	}
	source := filepath.Join(g.dir, "Workers.java")
	if err := os.WriteFile(source, workersSource, 0o600); err != nil {
		return err
	}
	lib := filepath.Join(kafka, "lib", "*")
	if out, err := exec.CommandContext(ctx, "javac", "-d", g.dir, "-cp", lib, source).CombinedOutput(); err != nil {
		return fmt.Errorf("compiling: %w: %s", err, out)
	}

	args := []string{"-Xmx2G", "-Xms2G", "-XX:+UseG1GC", "-cp", g.dir + string(os.PathListSeparator) + lib, "Workers"}
	for i := range g.processes {
		if g.processes[i], err = startJavaProcess(ctx, append(args, g.kafka.java(g.url)...), g.happened); err != nil {
			return err
		}
	}
	for _, p := range g.processes {
		if err := p.command("warm"); err != nil {
			return err
		}
	}
	return nil
}

// happened takes what the workers do.
func (g *javaGroup) happened(e javaEvent) {
	switch e.kind {
	case "run":
		g.ledger.report(e.run)
	case "owns":
		g.mu.Lock()
		g.owns[e.worker] = e.count
		g.mu.Unlock()
	case "revoked":
		g.revoked(e.partitions)
	case "fault":
		g.ledger.fault(errors.New("the Java client: " + e.text))
	}
}

// javaProcess is one process of workers.
type javaProcess struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	log   strings.Builder
	done  chan struct{} // gets one for each command that was carried out
	ended chan struct{} // closed when its output has ended
}

func startJavaProcess(ctx context.Context, args []string, happened func(javaEvent)) (*javaProcess, error) {
	p := &javaProcess{cmd: exec.CommandContext(ctx, "java", args...), done: make(chan struct{}, 1), ended: make(chan struct{})}
	p.cmd.Stderr = &p.log
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			e, err := parseEvent(lines.Text())
			switch {
			case err != nil:
				happened(javaEvent{kind: "fault", text: err.Error()})
			case e.kind == "done":
				p.done <- struct{}{}
			default:
				happened(e)
			}
		}
	}()
	return p, nil
}

// command has the program carry out a command and waits until it has.
func (p *javaProcess) command(text string) error {
	if _, err := io.WriteString(p.stdin, text+"\n"); err != nil {
		return fmt.Errorf("telling the Java client %q: %w", text, err)
	}
	select {
	case <-p.done:
		return nil
	case <-p.ended:
		_ = p.cmd.Wait() // until the log is complete
		return fmt.Errorf("telling the Java client %q: it has ended: %s", text, p.log.String())
	case <-time.After(settleTime):
		return fmt.Errorf("telling the Java client %q: no answer", text)
	}
}

func (p *javaProcess) pid() int { return p.cmd.Process.Pid }

// kill ends the process where it is.
func (p *javaProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
	_ = p.cmd.Wait()
}

// stop lets the process end by itself, for a while.
func (p *javaProcess) stop() {
	_ = p.stdin.Close()
	t := time.AfterFunc(stopTime, func() { _ = p.cmd.Process.Kill() })
	defer t.Stop()
	<-p.ended
	_ = p.cmd.Wait()
}

// javaEvent is a line of the program.
type javaEvent struct {
	kind       string
	worker     int
	count      int     // of what it owns
	partitions []int32 // that it gives up
	run        run
	text       string // of a command that was carried out, or of a fault
}

func parseEvent(line string) (e javaEvent, err error) {
	kind, rest, _ := strings.Cut(line, " ")
	e = javaEvent{kind: kind, text: rest}
	if kind == "done" || kind == "fault" {
		return e, nil
	}
	var numbers []int64
	for word := range strings.FieldsSeq(rest) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return e, fmt.Errorf("reading %q of the Java client: %w", line, err)
		}
		numbers = append(numbers, n)
	}
	wellFormed := kind == "run" && len(numbers) == 7 || kind == "owns" && len(numbers) == 2 || kind == "revoked" && len(numbers) > 1
	if !wellFormed || numbers[0] < 0 || numbers[0] >= mostWorkers {
		return e, fmt.Errorf("reading %q of the Java client: it is no event", line)
	}
	e.worker = int(numbers[0])
	switch kind {
	case "run":
		e.run = run{message: message{int(numbers[2]), int(numbers[3])}, worker: e.worker, unit: int(numbers[1]),
			arrived: time.Unix(0, numbers[4]), start: time.Unix(0, numbers[5]), end: time.Unix(0, numbers[6]), done: true}
	case "owns":
		e.count = int(numbers[1])
	case "revoked":
		for _, p := range numbers[1:] {
			e.partitions = append(e.partitions, int32(p))
		}
	}
	return e, nil
}

// processOf returns the process of a worker.
func (g *javaGroup) processOf(worker int) *javaProcess {
	if worker < g.After-g.crashing() {
		return g.processes[0]
	}
	return g.processes[1]
}

// all has each process that is left carry out a command.
func (g *javaGroup) all(command string) {
	for _, p := range g.running() {
		if err := p.(*javaProcess).command(command); err != nil {
			g.ledger.fault(err)
		}
	}
}

func (g *javaGroup) running() (all servers) {
	for _, p := range g.processes {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

func (g *javaGroup) predicted(int) ([]int, error) { return g.any(), nil }

func (g *javaGroup) change(ctx context.Context, n int, moving func([]int)) error {
	if err := g.announce(ctx, n, moving); err != nil {
		return err
	}
	for g.workers < n {
		if err := g.join(); err != nil {
			return err
		}
	}
	if g.workers > n {
		// Those that leave come after those that will crash, in the same process.
		if err := g.processOf(n).command("remove" + numbers(n, g.workers)); err != nil {
			return err
		}
		g.workers = n
	}
	return g.settle(ctx, n)
}

func (g *javaGroup) join() error {
	if err := g.processOf(g.workers).command(fmt.Sprintf("add %d", g.workers)); err != nil {
		return err
	}
	g.workers++
	return nil
}

// settle waits until each member has its share.
func (g *javaGroup) settle(ctx context.Context, n int) error {
	return g.shared(ctx, n, func(worker int) int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.owns[worker]
	})
}

// numbers lists those from one up to another, each after a space.
func numbers(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		_, _ = fmt.Fprintf(&b, " %d", i)
	}
	return b.String()
}

// crash kills the process of the last n workers. Before, it reports what they have done.
func (g *javaGroup) crash(n int) {
	p := g.processes[1]
	if err := p.command("freeze"); err != nil {
		g.ledger.fault(err)
	}
	p.kill()
	g.processes[1] = nil
	for i := g.workers - n; i < g.workers; i++ {
		g.ledger.crash(i)
	}
	g.workers -= n
}

func (g *javaGroup) hold() (release func()) {
	g.all("pause")
	// Until every worker has ended the poll in which it was told, and the brokers have answered
	// the fetches that were under way: what these bring is kept for when the worker goes on.
	time.Sleep(2*pollTime + fetchWait)
	return sync.OnceFunc(func() { g.all("resume") })
}

const (
	// pollTime is for how long a worker polls at a time.
	pollTime = 100 * time.Millisecond
	// fetchWait is how long a broker keeps a fetch waiting: Kafka's default of fetch.max.wait.ms.
	fetchWait = 500 * time.Millisecond
)

func (g *javaGroup) pace(least, spread int64) { g.all(fmt.Sprintf("pace %d %d", least, spread)) }

func (g *javaGroup) stop() {
	g.tell(nil)
	g.running().stop()
	_ = os.RemoveAll(g.dir)
	g.close()
}
