package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Cloud is what the node plane needs of a compute cloud. Every method honours ctx: a request whose deadline
// has passed is not sent, which is what keeps a process that was paused for longer than its lease from acting
// on what it saw before.
type Cloud interface {
	// Workers lists every instance of the cluster, of any state that the cloud still shows. The list is
	// complete or the error is not nil; a partial list may come with an *IncompleteError, for display only. A
	// new instance may be missing for a while.
	Workers(ctx context.Context) ([]Instance, error)
	// Lookup describes instances by ID, also those of others, which are Foreign. Instances unknown to the
	// cloud are absent from the map, which for one that existed some minutes ago means that it is gone.
	Lookup(ctx context.Context, instanceIDs []string) (map[string]Instance, error)
	// Subnets lists the subnets in which workers may be launched.
	Subnets(ctx context.Context) ([]Subnet, error)
	// Launch starts one instance, or returns the one that the same token started before. A *LaunchError says
	// that nothing runs by this request; after any other error that is unknown, and only the identical
	// request may follow.
	Launch(ctx context.Context, req LaunchRequest) (Instance, error)
	// Terminate ends an instance. Ending one that is ending or gone is no error.
	Terminate(ctx context.Context, instanceID string) error
	// Diagnose returns what the cloud can tell about an instance that does not join: its state, why, and the
	// end of its console.
	Diagnose(ctx context.Context, instanceID string) (Diagnosis, error)
}

// Market is how an instance is bought.
type Market string

// The markets.
const (
	Spot     Market = "spot"
	OnDemand Market = "on-demand"
)

// InstanceState is the life-cycle state of an instance.
type InstanceState string

// The states of an instance. An instance in the last four no longer counts as a worker.
const (
	StatePending      InstanceState = "pending"
	StateRunning      InstanceState = "running"
	StateStopping     InstanceState = "stopping"
	StateStopped      InstanceState = "stopped"
	StateShuttingDown InstanceState = "shutting-down"
	StateTerminated   InstanceState = "terminated"
)

// Instance is a machine as the cloud describes it. Its state says nothing of its node: a running instance may never join. ActionID
// is how an action finds again what it launched before a crash, and Foreign keeps the instances of others out of everything but
// Lookup, which may be asked for any ID.
type Instance struct {
	ID           string        `json:"id"`
	State        InstanceState `json:"state"`
	Type         string        `json:"type,omitempty"`
	Zone         string        `json:"zone,omitempty"`
	Market       Market        `json:"market,omitempty"`
	PrivateIP    string        `json:"privateIp,omitempty"` // absent once it is gone
	LaunchedAt   time.Time     `json:"launchedAt,omitzero"`
	ActionID     string        `json:"actionId,omitempty"`     // tag of the action that launched it; "" unless Muster did
	Pool         string        `json:"pool,omitempty"`         // tag of the pool that it was launched in
	TemplateHash string        `json:"templateHash,omitempty"` // tag that says by what it was launched; "" if Muster gave none
	ControlPlane bool          `json:"controlPlane,omitempty"` // a K3s server, never touched
	Foreign      bool          `json:"foreign,omitempty"`      // without this cluster's tag; only Lookup returns such
	Impairment   Impairment    `json:"impairment,omitzero"`    // by a StatusReader; a Cloud leaves it out
}

// Alive reports whether the instance counts: pending or running.
func (i Instance) Alive() bool { return i.State == StatePending || i.State == StateRunning }

// Gone reports whether the cloud confirms that the instance is ending or has ended for good.
func (i Instance) Gone() bool { return i.State == StateShuttingDown || i.State == StateTerminated }

// Subnet is a place in which to launch.
type Subnet struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
}

// Offering is one way to get a node.
type Offering struct {
	Zone   string `json:"zone"`
	Subnet string `json:"subnet"`
	Type   string `json:"type"`
	Market Market `json:"market"`
	Pool   string `json:"pool,omitempty"` // whose node it would be; tag
}

// LaunchRequest is a complete request for one instance, with nothing left to be filled in later: it is
// written down before it is sent so that another process can send the very same one.
type LaunchRequest struct {
	Token    string   `json:"token"` // at most 64 characters; makes the request idempotent within its zone
	Offering Offering `json:"offering"`
	Template Template `json:"template,omitzero"`
	Cluster  string   `json:"cluster,omitempty"` // tag
	ActionID string   `json:"actionId"`          // tag
	Ordinal  int      `json:"ordinal"`           // tag
	// TemplateHash is a tag, by which a node of another template, labels or taints is known later. A request that was written down by a
	// program without it has none, also when it is repeated.
	TemplateHash string `json:"templateHash,omitempty"`
}

// Template is what an instance boots from, pinned to a version so that a replay is identical.
type Template struct {
	ID          string `json:"id,omitempty"`
	Version     string `json:"version,omitempty"`
	ImageID     string `json:"imageId,omitempty"`
	UserDataRef string `json:"userDataRef,omitempty"` // where the user data is, never the data: it can hold secrets

	SecurityGroups  string `json:"securityGroups,omitempty"`  // IDs separated by commas; "": the launch template's
	InstanceProfile string `json:"instanceProfile,omitempty"` // name; "": the launch template's
}

// Diagnosis is what is known about an instance that does not do what it should.
type Diagnosis struct {
	State   InstanceState `json:"state,omitempty"`
	Reason  string        `json:"reason,omitempty"`  // the cloud's reason for the state
	Console string        `json:"console,omitempty"` // end of the console output, redacted before it is logged
}

// LaunchFailure classifies a refused launch by what to do next.
type LaunchFailure string

// The kinds of refusal.
const (
	FailCapacity   LaunchFailure = "capacity"    // this type, market and zone: try the next offering
	FailQuota      LaunchFailure = "quota"       // this market and type, in every zone: try the next
	FailAddresses  LaunchFailure = "addresses"   // this subnet has no free address: try the next subnet
	FailSpotRole   LaunchFailure = "spot-role"   // Spot can't be used in this account: try On-Demand
	FailSpot       LaunchFailure = "spot"        // Spot was refused for a reason that On-Demand need not share, such as a permission: try On-Demand
	FailThrottled  LaunchFailure = "throttled"   // too many requests: the identical request, later
	FailTokenSpent LaunchFailure = "token-spent" // the token's instance was launched and has been terminated
	FailPermanent  LaunchFailure = "permanent"   // no offering would do better: end the action
)

// LaunchError is a definite refusal: no instance runs by the refused request.
type LaunchError struct {
	Kind    LaunchFailure
	Code    string // the cloud's own code, for example InsufficientInstanceCapacity
	Message string
}

// Error returns the code, the message and how the refusal is treated.
func (e *LaunchError) Error() string { return fmt.Sprintf("%s: %s (%s)", e.Code, e.Message, e.Kind) }

// IncompleteError says that a list is only a part of what exists.
type IncompleteError struct {
	What string
	Err  error
}

// Error says what is incomplete and why.
func (e *IncompleteError) Error() string {
	return fmt.Sprintf("incomplete list of %s: %v", e.What, e.Err)
}

// Unwrap returns the cause.
func (e *IncompleteError) Unwrap() error { return e.Err }

// launchFailure returns the kind of a definite refusal, "" for an unknown outcome.
func launchFailure(err error) LaunchFailure {
	var le *LaunchError
	if errors.As(err, &le) {
		return le.Kind
	}
	return ""
}
