package nodes

// Check is one thing that was looked at before the node plane is trusted with a cluster: that a permission is there, that a subnet
// exists, that a query has an answer. Adapters return them, `muster nodes doctor` prints them.
type Check struct {
	Name   string `json:"name"`             // what was looked at, for example "ec2:RunInstances"
	OK     bool   `json:"ok"`               // whether it is as it should be
	Detail string `json:"detail,omitempty"` // what was found, or what went wrong
	Fix    string `json:"fix,omitempty"`    // what to do about it; "" if OK
}
