//go:build !race

package virtual

import (
	"net"

	"github.com/muster-dev/muster/partition"
)

// broken is what makes workers wrong in one way.
type broken struct {
	wire    func(*pod) func(net.Conn) net.Conn
	config  func(*partition.Config)
	handler func(partition.Message) partition.Message
}
