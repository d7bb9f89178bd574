// Command muster-defender is what runs in the pods of defenders: `muster defender`, and the
// commands on their group, without simulator, scenarios or NATS server.
package main

import (
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/defender"
)

func main() { command.Main(defender.Binary()) }
