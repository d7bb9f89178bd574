package handoff

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
)

// profiled calls f while this process, in which the workers are, and the NATS servers write CPU profiles
// into a directory, named after the contender. Kafka's processes write none. With no directory it only calls f.
func (m *measurement) profiled(f func() error) error {
	if m.profiles == "" {
		return f()
	}
	name := strings.NewReplacer(" ", "-", ",", "").Replace(fmt.Sprintf("%s-R%d-%s", m.Name, m.Replicas, m.Sync))
	file := func(process string) string { return filepath.Join(m.profiles, name+"-"+process+".pprof") }

	stop, err := profileTo(file("client"))
	if err != nil {
		return err
	}
	for i, s := range m.brokers {
		if c, ok := s.(*child); ok {
			err = errors.Join(err, c.tell(profileCommand+file(fmt.Sprintf("broker-%d", i))))
		}
	}
	err = errors.Join(err, f())
	for _, s := range m.brokers {
		if c, ok := s.(*child); ok {
			err = errors.Join(err, c.tell(profileCommand))
		}
	}
	return errors.Join(err, stop())
}

// profileCommand is what a broker reads from its standard input: with the name of a file it begins a profile, and
// without one it ends it.
const profileCommand = "profile "

// obey carries out the commands that come on a broker's standard input until it ends.
func obey(commands io.Reader) error {
	stop := func() error { return nil }
	lines := bufio.NewScanner(commands)
	for lines.Scan() {
		file, ok := strings.CutPrefix(lines.Text(), profileCommand)
		if !ok {
			return fmt.Errorf("a broker was told %q, which it doesn't know", lines.Text())
		}
		if err := stop(); err != nil {
			return err
		}
		stop = func() error { return nil }
		if file == "" {
			continue
		}
		var err error
		if stop, err = profileTo(file); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), stop())
}

// profileTo writes a CPU profile of this process until stop is called.
func profileTo(file string) (stop func() error, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("writing a CPU profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("writing the CPU profile %s: %w", file, err), f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
