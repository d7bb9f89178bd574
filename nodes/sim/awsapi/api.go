package awsapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster/nodes/sim"
)

// API is the region's server. It is an http.Handler for any number of concurrent requests.
type API struct {
	clock   sim.Clock
	calls   callLog
	faults  faults
	queues  *queues
	keys    *keys
	actions map[string]func(*request) (any, error) // by permission
}

// New returns a server over w.
func New(w *sim.Simulator, o Options) *API {
	o = o.withDefaults(w.Cluster())
	a := &API{clock: w.Clock()}
	a.faults.denied = map[string]bool{}
	a.queues = newQueues(a.clock, o.PollUnit)
	a.keys = &keys{parameters: o.Parameters, secrets: o.Secrets}
	a.actions = actions(newCompute(w, o), a.keys, a.queues)
	return a
}

// actions returns what answers the requests of all services, by permission.
func actions(c *compute, k *keys, q *queues) map[string]func(*request) (any, error) {
	return map[string]func(*request) (any, error){
		"ec2:RunInstances":                   c.runInstances,
		"ec2:DescribeInstances":              c.describeInstances,
		"ec2:DescribeInstanceStatus":         c.describeInstanceStatus,
		"ec2:TerminateInstances":             c.terminateInstances,
		"ec2:RebootInstances":                c.rebootInstances,
		"ec2:StopInstances":                  c.stopInstances,
		"ec2:DescribeSubnets":                c.describeSubnets,
		"ec2:GetConsoleOutput":               c.getConsoleOutput,
		"ec2:DescribeInstanceTypes":          c.describeInstanceTypes,
		"ec2:DescribeLaunchTemplateVersions": c.describeLaunchTemplateVersions,
		"ec2:DescribeImages":                 c.describeImages,
		"ec2:DescribeSpotPriceHistory":       c.describeSpotPriceHistory,
		"pricing:GetProducts":                c.getProducts,
		"sts:GetCallerIdentity":              getCallerIdentity,
		"ssm:GetParameter":                   k.getParameter,
		"secretsmanager:GetSecretValue":      k.getSecretValue,
		"sqs:ReceiveMessage":                 q.receiveMessage,
		"sqs:DeleteMessage":                  q.deleteMessage,
	}
}

// Fault makes requests go wrong from now on.
func (a *API) Fault(f Fault) { a.faults.add(f) }

// Heal ends all faults and gives every permission back.
func (a *API) Heal() { a.faults.heal() }

// Deny takes permissions away, named as in a policy: ec2:RunInstances.
func (a *API) Deny(permissions ...string) { a.faults.deny(permissions) }

// OnCall makes f see every request when it has arrived and before anything is done about it.
func (a *API) OnCall(f func(Call)) { a.calls.watch(f) }

// Calls returns the requests so far, in the order in which they arrived.
func (a *API) Calls() []Call { return a.calls.all() }

// Permissions returns what a policy must allow for the requests so far, sorted, each once.
func (a *API) Permissions() []string {
	var out []string
	for _, c := range a.Calls() {
		out = append(out, c.Permission())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// PutParameter sets a parameter of SSM, by name, or by name:version.
func (a *API) PutParameter(name, value string) { a.keys.put(name, value) }

// Send puts a message into a queue; queues come into being when they are named.
func (a *API) Send(queueURL, body string) { a.queues.send(queueURL, body) }

// Waiting returns how many messages a queue holds, those in flight included.
func (a *API) Waiting(queueURL string) int { return a.queues.waiting(queueURL) }

// ServeHTTP answers one request of any of the services.
func (a *API) ServeHTTP(rw http.ResponseWriter, hr *http.Request) {
	r, err := read(hr)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	r.At = a.clock.Now()
	index := a.calls.note(r.Call)
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

// answer returns the reply, nil for none.
func (a *API) answer(rw http.ResponseWriter, hr *http.Request, r *request, index int) (int, []byte) {
	f, faulty := a.faults.next(r.Action)
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
	a.calls.failed(index, e.code)
	return e.status, r.encodeError(e)
}

// perform finds the action, sees to permissions and dry runs, and does it.
func (a *API) perform(r *request) (any, error) {
	do, ok := a.actions[r.Permission()]
	if !ok {
		return nil, refused("InvalidAction", "The action %s is not valid for this web service.", r.Permission())
	}
	denied := a.faults.denies(r.Permission())
	switch {
	case denied && r.Service == "ec2":
		return nil, &apiError{http.StatusForbidden, "UnauthorizedOperation", notAuthorized(r.Permission())}
	case denied:
		return nil, refused("AccessDeniedException", "User is not authorized to perform: %s", r.Permission())
	case r.DryRun:
		return nil, &apiError{http.StatusPreconditionFailed, "DryRunOperation", "Request would have succeeded, but DryRun flag is set."}
	}
	return do(r)
}

// notAuthorized is EC2's message about a missing permission, as long as a real one.
func notAuthorized(permission string) string {
	return "You are not authorized to perform this operation. User: arn:aws:sts::" + account + ":assumed-role/muster/test is not authorized to perform: " +
		permission + " because no identity-based policy allows the action. Encoded authorization failure message: " + strings.Repeat("x", 300)
}
