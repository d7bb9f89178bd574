package connect_test

import (
	"fmt"

	"github.com/muster-dev/muster/nodes/connect"
)

// A flag goes before the environment, which goes before the file.
func ExampleSources() {
	s := connect.Sources{
		Flags:    map[string]string{"MAX_WORKERS": "30"},
		Env:      func(name string) (string, bool) { return "20", name == "MAX_WORKERS" || name == "MIN_WORKERS" },
		File:     map[string]string{"MAX_WORKERS": "10", "CPU_UP": "0.8"},
		FileName: "muster.yaml",
	}
	for _, name := range []string{"MAX_WORKERS", "MIN_WORKERS", "CPU_UP"} {
		v, _ := s.Lookup(name)
		fmt.Println(name, v, s.Source(name))
	}
	// Output:
	// MAX_WORKERS 30 flag
	// MIN_WORKERS 20 environment
	// CPU_UP 0.8 muster.yaml
}

// What is wrong in any part is told in one message.
func ExampleParseStore() {
	s := connect.Sources{Flags: map[string]string{"CPU_UP": "80%", "LOGS_KEEP_DAYS": "0"}}
	_, err := connect.ParseStore(s.Lookup)
	fmt.Println(err)
	// Output:
	// 2 wrong settings:
	//   CPU_UP="80%": write a number, for example 0.5
	//   LOGS_KEEP_DAYS="0": use 1 to 3650 days
}
