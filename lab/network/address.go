// Package network is the network that a lab's machines are on: a bridge in a network
// namespace of its own, to which each machine has a cable. The lab's process stays outside.
// It listens and dials inside by sockets that were made there, so that nothing of the
// network is visible on the machine that the lab runs on, and nothing is left of it when
// the process ends.
package network

import "fmt"

// What is where. Labs on one machine don't see each other, so all of them use the same
// addresses.
const (
	Gateway  = "10.77.0.1"       // of the bridge: the API server is there
	Metadata = "169.254.169.254" // of the bridge too: the instance metadata service
)

// Address returns the address of a machine, and the range of its pods, by its number from 1
// to 200.
func Address(number int) (address, pods string) {
	return fmt.Sprintf("10.77.0.%d", 10+number), fmt.Sprintf("10.244.%d.0/24", number)
}
