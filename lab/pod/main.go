// Command pod is what runs in the containers of real nodes in tests; their images hold
// nothing else.
//
//	pod pause           holds a pod's namespaces, as the pause container
//	pod serve LINGER    says that it is up, says when SIGTERM comes, and ends LINGER later
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pod:", err)
		os.Exit(2)
	}
}

func run(args []string) error {
	signals := make(chan os.Signal, 16)
	switch {
	case len(args) == 1 && args[0] == "pause":
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
		pause(signals)
		return nil
	case len(args) == 2 && args[0] == "serve":
		linger, err := time.ParseDuration(args[1])
		if err != nil {
			return fmt.Errorf("LINGER %q: write a duration, such as 2s", args[1])
		}
		signal.Notify(signals, syscall.SIGTERM)
		serve(signals, linger)
		return nil
	default:
		return fmt.Errorf("usage: pod pause, or pod serve LINGER")
	}
}

// pause waits for its end, and for the children that it inherits.
func pause(signals <-chan os.Signal) {
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve(signals <-chan os.Signal, linger time.Duration) {
	fmt.Println("up")
	<-signals
	fmt.Println("SIGTERM")
	time.Sleep(linger)
	fmt.Println("done")
}
