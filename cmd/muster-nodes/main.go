// Command muster-nodes is the node plane as a daemon, and the commands that look at it:
// `muster nodes` without the simulated cluster.
package main

import (
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/nodes"
)

func main() { command.Main(nodes.Binary()) }
