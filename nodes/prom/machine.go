package prom

// machine is a node as kube-state-metrics shows it.
type machine struct {
	node, ip string
}
