package natstest

// Options say what kind of server is started.
type Options struct {
	Dir         string // for what it stores; Start fills it in
	MaxStore    int64  // how many bytes it stores; 0: no limit that a test meets
	NoJetStream bool   // a server without JetStream
	MapFrom     string // of a subject mapping: what is published to these subjects
	MapTo       string // is stored under these; empty: there is none

	// Of one of a cluster: its name, where clients find it, where the others do, and where
	// it finds them.
	Name         string
	Port         int
	ClusterPort  int
	ClusterPorts []int
}

// Request is a line that natsd reads: start a server, or stop that of a URL.
type Request struct {
	Start *Options `json:",omitempty"`
	Stop  string   `json:",omitempty"`
}

// Answer is the line that natsd writes for a Request.
type Answer struct {
	URL     string `json:",omitempty"`
	Version string // of nats-server
	Err     string `json:",omitempty"`
}
