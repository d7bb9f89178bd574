package awsapi

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// Options describe what the region holds besides the simulator's instances. The zero value works.
type Options struct {
	Tag        Tag               // of the cluster's instances and subnets; zero: muster.dev/cluster=NAME, or =sim for a nameless cluster
	ServerTag  Tag               // of K3s servers; zero: muster.dev/role=control-plane
	PageSize   int               // most instances of one page of a list; 0: 1,000
	Parameters map[string]string // of SSM, by name, or by name:version
	Secrets    map[string]string // of Secrets Manager, by name
	Images     []string          // IDs of images; nil: every image exists
	Templates  map[string]string // image by launch template and version, TEMPLATE/VERSION; nil: every template exists
	Foreign    []nodes.Instance  // instances of others, which carry no tag
	Actor      string            // in the ledger; "": aws
	PollUnit   time.Duration     // how long a second of long polling takes; 0: a second
}

// Tag is a tag of a resource.
type Tag struct{ Key, Value string }

// Call is one request as it arrived.
type Call struct {
	Service string     // ec2, sts, ssm, secretsmanager or sqs
	Action  string     // for example RunInstances
	Params  url.Values // of the query protocol; of a JSON request its top-level fields
	DryRun  bool
	At      time.Time // by the simulator's clock
	Code    string    // the error that it was answered with; "" for success
}

// Permission returns the call as an IAM policy names it, for example ec2:RunInstances.
func (c Call) Permission() string { return c.Service + ":" + c.Action }

// Fault is something that goes wrong with requests.
type Fault struct {
	Action string // which requests: an action's name; "" for all
	After  int    // let this many such requests pass first
	Times  int    // then hit this many; 0: all
	// One of the following; with none of them the request is throttled.
	Code    string // refuse with this error code and Status
	Status  int    // of Code; 0: 400, from 500 on it is the service's fault
	Garbage bool   // answer 200 with Body instead of a reply, without an effect
	Body    string
	Cut     int  // send only this many bytes of the real reply, then cut the connection
	Drop    bool // do it, and cut the connection instead of replying
	Stall   bool // neither do it nor reply
	Late    bool // do it when the client has gone away
}

// API is the region's server. It is an http.Handler for any number of concurrent requests.
type API struct {
	w      *sim.Simulator
	c      *sim.Client
	o      Options
	mu     sync.Mutex
	calls  []Call
	faults []*Fault
	denied map[string]bool
	tags   map[string][]Tag // by instance, those it was launched with
	queues map[string]*queue
	onCall func(Call)
}

// New returns a server over w.
func New(w *sim.Simulator, o Options) *API {
	o.Actor = cmp.Or(o.Actor, "aws")
	o.PageSize = cmp.Or(o.PageSize, 1000)
	o.PollUnit = cmp.Or(o.PollUnit, time.Second)
	if o.Tag == (Tag{}) {
		o.Tag = Tag{"muster.dev/cluster", cmp.Or(w.Cluster(), "sim")}
	}
	if o.ServerTag == (Tag{}) {
		o.ServerTag = Tag{"muster.dev/role", "control-plane"}
	}
	o.Foreign = slices.Clone(o.Foreign)
	for i := range o.Foreign {
		o.Foreign[i].Foreign = true
	}
	return &API{w: w, c: w.Client(o.Actor, nil), o: o, denied: map[string]bool{}, tags: map[string][]Tag{}, queues: map[string]*queue{}}
}

// Fault makes requests go wrong from now on.
func (a *API) Fault(f Fault) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, &f)
}

// Heal ends all faults and gives every permission back.
func (a *API) Heal() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = nil
	clear(a.denied)
}

// Deny takes permissions away, named as in a policy: ec2:RunInstances.
func (a *API) Deny(permissions ...string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range permissions {
		a.denied[p] = true
	}
}

// OnCall makes f see every request when it has arrived and before anything is done about it.
func (a *API) OnCall(f func(Call)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.onCall = f
}

// Calls returns the requests so far, in the order in which they arrived.
func (a *API) Calls() []Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// Permissions returns what a policy must allow for the requests so far, sorted, each once.
func (a *API) Permissions() []string {
	var out []string
	for _, c := range a.Calls() {
		out = append(out, c.Permission())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// fault returns the fault that hits this request.
func (a *API) fault(action string) (Fault, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.faults {
		if f.Action != "" && f.Action != action {
			continue
		}
		if f.After > 0 {
			f.After--
			continue
		}
		if f.Times < 0 {
			continue
		}
		if f.Times > 0 {
			if f.Times--; f.Times == 0 {
				f.Times = -1 // used up
			}
		}
		return *f, true
	}
	return Fault{}, false
}

// apiError is a refusal on the wire.
type apiError struct {
	status        int
	code, message string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func refused(code, message string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, code, fmt.Sprintf(message, args...)}
}

// request is one request, of whichever protocol.
type request struct {
	Call
	ctx  context.Context
	body []byte // of a JSON request
}

func (r *request) get(key string) string { return r.Params.Get(key) }

// list returns the values of prefix.1, prefix.2, ...
func (r *request) list(prefix string) []string {
	var out []string
	for i := 1; r.Params.Has(fmt.Sprintf("%s.%d", prefix, i)); i++ {
		out = append(out, r.get(fmt.Sprintf("%s.%d", prefix, i)))
	}
	return out
}

// ServeHTTP answers one request of any of the services.
func (a *API) ServeHTTP(rw http.ResponseWriter, hr *http.Request) {
	r, err := read(hr)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	r.At = a.w.Clock().Now()
	index := a.note(r.Call)
	status, reply := a.answer(rw, hr, r, index)
	if reply == nil {
		panic(http.ErrAbortHandler) // cuts the connection
	}
	contentType := "text/xml;charset=UTF-8"
	if r.json() {
		contentType = "application/x-amz-json-1.1"
	}
	rw.Header().Set("Content-Type", contentType)
	rw.Header().Set("Content-Length", fmt.Sprint(len(reply)))
	rw.WriteHeader(status)
	_, _ = rw.Write(reply) // a client that has gone away gets nothing
}

func (a *API) note(c Call) int {
	a.mu.Lock()
	a.calls = append(a.calls, c)
	index, f := len(a.calls)-1, a.onCall
	a.mu.Unlock()
	if f != nil {
		f(c)
	}
	return index
}

// answer returns the reply, nil for none.
func (a *API) answer(rw http.ResponseWriter, hr *http.Request, r *request, index int) (int, []byte) {
	f, faulty := a.fault(r.Action)
	switch {
	case !faulty:
	case f.Garbage:
		return http.StatusOK, []byte(f.Body)
	case f.Stall:
		<-hr.Context().Done()
		return 0, nil
	case f.Late:
		<-hr.Context().Done()
		r.ctx = context.WithoutCancel(hr.Context())
	case f.Drop, f.Cut > 0:
	default:
		e := &apiError{cmp.Or(f.Status, http.StatusBadRequest), f.Code, "simulated"}
		if f.Code == "" {
			e = &apiError{http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."}
		}
		return a.fail(r, index, e)
	}
	out, err := a.perform(r)
	switch {
	case f.Drop || f.Late || errors.Is(err, sim.ErrUnreachable):
		return 0, nil
	case err != nil:
		return a.fail(r, index, err)
	}
	reply := r.encode(out)
	if f.Cut > 0 && f.Cut < len(reply) {
		rw.Header().Set("Content-Length", fmt.Sprint(len(reply)))
		_, _ = rw.Write(reply[:f.Cut])
		return 0, nil
	}
	return http.StatusOK, reply
}

// fail returns an error as r's protocol writes it.
func (a *API) fail(r *request, index int, err error) (int, []byte) {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{http.StatusInternalServerError, "InternalError", err.Error()}
	}
	a.mu.Lock()
	a.calls[index].Code = e.code
	a.mu.Unlock()
	return e.status, r.encodeError(e)
}

// perform finds the action, sees to permissions and dry runs, and does it.
func (a *API) perform(r *request) (any, error) {
	do, ok := a.actions()[r.Permission()]
	if !ok {
		return nil, refused("InvalidAction", "The action %s is not valid for this web service.", r.Permission())
	}
	a.mu.Lock()
	denied := a.denied[r.Permission()]
	a.mu.Unlock()
	switch {
	case denied && r.Service == "ec2":
		return nil, &apiError{http.StatusForbidden, "UnauthorizedOperation", "You are not authorized to perform this operation. User: arn:aws:sts::123456789012:assumed-role/muster/test is not authorized to perform: " + r.Permission() + " because no identity-based policy allows the action. Encoded authorization failure message: " + strings.Repeat("x", 300)}
	case denied:
		return nil, refused("AccessDeniedException", "User is not authorized to perform: %s", r.Permission())
	case r.DryRun:
		return nil, &apiError{http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."}
	}
	return do(r)
}

func (a *API) actions() map[string]func(*request) (any, error) {
	return map[string]func(*request) (any, error){
		"ec2:RunInstances":                   a.runInstances,
		"ec2:DescribeInstances":              a.describeInstances,
		"ec2:TerminateInstances":             a.terminateInstances,
		"ec2:DescribeSubnets":                a.describeSubnets,
		"ec2:GetConsoleOutput":               a.getConsoleOutput,
		"ec2:DescribeInstanceTypes":          a.describeInstanceTypes,
		"ec2:DescribeLaunchTemplateVersions": a.describeLaunchTemplateVersions,
		"ec2:DescribeImages":                 a.describeImages,
		"sts:GetCallerIdentity":              a.getCallerIdentity,
		"ssm:GetParameter":                   a.getParameter,
		"secretsmanager:GetSecretValue":      a.getSecretValue,
		"sqs:ReceiveMessage":                 a.receiveMessage,
		"sqs:DeleteMessage":                  a.deleteMessage,
	}
}

// ---- the protocols

// targets are the services of the JSON protocol by the first part of X-Amz-Target.
var targets = map[string]string{"AmazonSSM": "ssm", "secretsmanager": "secretsmanager", "AmazonSQS": "sqs"}

const largestRequest = 1 << 20

func read(hr *http.Request) (*request, error) {
	body, err := io.ReadAll(io.LimitReader(hr.Body, largestRequest))
	if err != nil {
		return nil, err
	}
	r := &request{ctx: hr.Context()}
	if target := hr.Header.Get("X-Amz-Target"); target != "" {
		service, action, _ := strings.Cut(target, ".")
		r.Service, r.Action, r.body = targets[service], action, body
		var fields map[string]any
		if err := json.Unmarshal(body, &fields); err != nil {
			return nil, fmt.Errorf("reading a request for %s: %w", target, err)
		}
		r.Params = url.Values{}
		for k, v := range fields {
			r.Params.Set(k, fmt.Sprint(v))
		}
		return r, nil
	}
	r.Params, err = url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	r.Service, r.Action = "ec2", r.get("Action")
	if r.get("Version") == "2011-06-15" {
		r.Service = "sts"
	}
	r.DryRun = r.get("DryRun") == "true"
	return r, nil
}

func (r *request) json() bool { return r.body != nil }

func (r *request) encode(out any) []byte {
	if r.json() {
		b, _ := json.Marshal(out) // plain structs and maps of this package
		return b
	}
	b, _ := xml.Marshal(out)
	return append([]byte(xml.Header), b...)
}

func (r *request) encodeError(e *apiError) []byte {
	type one struct {
		Type    string `xml:"Type,omitempty"`
		Code    string
		Message string
	}
	switch {
	case r.json():
		b, _ := json.Marshal(map[string]string{"__type": e.code, "message": e.message})
		return b
	case r.Service == "sts":
		b, _ := xml.Marshal(struct {
			XMLName   xml.Name `xml:"ErrorResponse"`
			Error     one
			RequestID string `xml:"RequestId"`
		}{Error: one{"Sender", e.code, e.message}, RequestID: "simulated"})
		return b
	}
	b, _ := xml.Marshal(struct {
		XMLName   xml.Name `xml:"Response"`
		Errors    []one    `xml:"Errors>Error"`
		RequestID string
	}{Errors: []one{{Code: e.code, Message: e.message}}, RequestID: "simulated"})
	return b
}
