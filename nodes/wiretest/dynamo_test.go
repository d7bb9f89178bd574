package wiretest

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/dynamo"
	"github.com/muster-dev/muster/nodes/sim"
)

var servers component.Pool

func TestMain(m *testing.M) {
	code := m.Run()
	servers.Stop()
	os.Exit(code)
}

var tables atomic.Int64

// refusal is how DynamoDB turns requests away.
type refusal struct {
	name   string
	status int // 0 closes the connection
	kind   string
	after  bool // the request takes effect, its reply is lost
}

var refusals = []refusal{
	{"throttles", http.StatusBadRequest, "ProvisionedThroughputExceededException", false},
	{"denies access", http.StatusBadRequest, "AccessDeniedException", false},
	{"has an internal error", http.StatusInternalServerError, "InternalServerError", false},
	{"closes its connections", 0, "", false},
	{"loses its replies", 0, "", true},
}

// inDynamoDB keeps the rig's record and event log in a server of the DynamoDB API, behind a proxy that refuses while refuse says how.
func inDynamoDB(refuse func(*rig) *refusal) func(*set) {
	return func(s *set) {
		n := tables.Add(1)
		s.policy.StateTable, s.policy.LogsTable = fmt.Sprintf("state-%d", n), fmt.Sprintf("logs-%d", n)
		s.store = func(g *rig) (nodes.Store, nodes.EventLog) {
			target := &url.URL{Scheme: "http", Host: servers.Get(g.t, component.Dynalite()).Addr}
			proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }}
			ready := false
			endpoint := g.serve(toStore, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var f *refusal
				if ready && refuse != nil {
					f = refuse(g)
				}
				switch {
				case f == nil:
					proxy.ServeHTTP(w, r)
				case f.after:
					proxy.ServeHTTP(discard{http.Header{}}, r)
					panic(http.ErrAbortHandler)
				case f.status == 0:
					panic(http.ErrAbortHandler)
				default:
					w.Header().Set("Content-Type", "application/x-amz-json-1.0")
					w.WriteHeader(f.status)
					_, _ = fmt.Fprintf(w, `{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":"not now"}`, f.kind)
				}
			}))
			db, err := dynamo.New(aws.Config{Region: "local", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")},
				dynamo.Config{KeepDays: 3650, Now: g.Clock().Now}.For(g.policy),
				func(o *dynamodb.Options) {
					o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) { r.MaxAttempts, r.MaxBackoff = 2, time.Millisecond })
				})
			g.must(err)
			g.must(db.CreateTables(g.t.Context()))
			ready = true
			return db.Store(), db.EventLog()
		}
	}
}

// discard takes a reply that nobody gets.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

func TestAScaleUpWithEveryAdapterOnItsRealProtocol(t *testing.T) {
	g := wanting(t, inDynamoDB(nil))
	g.ends()
	for protocol, n := range g.spent([4]int64{}) {
		if n == 0 {
			t.Errorf("no request by protocol %d", protocol)
		}
	}
	var kinds []string
	for e, err := range g.eventLog.Read(t.Context(), nodes.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Kind)
	}
	if len(kinds) == 0 {
		t.Error("the event log is empty")
	}
}

func TestAScaleDownWithEveryAdapterOnItsRealProtocol(t *testing.T) {
	g := scaleDown(t, inDynamoDB(nil))
	if n := g.calls[toStore].Load(); n == 0 {
		t.Error("nothing was written")
	}
}

func TestWhileDynamoDBRefusesNothingIsDoneAndTheNextTickRecovers(t *testing.T) {
	for i := range refusals {
		f := &refusals[i]
		t.Run(f.name, func(t *testing.T) {
			var on atomic.Bool
			g := wanting(t, inDynamoDB(func(*rig) *refusal {
				if on.Load() {
					return f
				}
				return nil
			}))
			on.Store(true)
			for range 3 {
				rep, err := g.tick()
				if err == nil || rep.Decision != nil && rep.Decision.Action != nodes.Noop {
					t.Errorf("the tick decided %+v with error %v", rep.Decision, err)
				}
			}
			if n := g.count(sim.Launched, sim.LaunchRefused); n != 0 {
				t.Errorf("%d launches without a record", n)
			}
			on.Store(false)
			g.ends()
		})
	}
}

// TestDynamoDBRefusesInTheMiddleOfAnAction: from the launch on nothing can be written for a while. The instance is neither forgotten
// nor launched again.
func TestDynamoDBRefusesInTheMiddleOfAnAction(t *testing.T) {
	for i := range refusals {
		f := &refusals[i]
		t.Run(f.name, func(t *testing.T) {
			var healed atomic.Bool
			g := wanting(t, inDynamoDB(func(g *rig) *refusal {
				if !healed.Load() && g.count(sim.Launched) > 0 {
					return f
				}
				return nil
			}))
			for range 6 {
				_, _ = g.tick()
			}
			if n := g.count(sim.Launched); n != 1 {
				t.Fatalf("%d launched before DynamoDB refused, want one", n)
			}
			healed.Store(true)
			g.ends()
		})
	}
}

// TestDynamoDBRefusesInTheMiddleOfADrain: without its mark in the record nothing is terminated.
func TestDynamoDBRefusesInTheMiddleOfADrain(t *testing.T) {
	for i := range refusals {
		f := &refusals[i]
		t.Run(f.name, func(t *testing.T) {
			var healed atomic.Bool
			g := draining(t, inDynamoDB(func(g *rig) *refusal {
				if !healed.Load() && g.count(sim.Evicted) > 0 {
					return f
				}
				return nil
			}))
			for range 8 {
				_, _ = g.tick()
			}
			if n := g.count(sim.Evicted); n == 0 {
				t.Fatal("nothing was evicted before DynamoDB refused")
			}
			if n := g.count(sim.Terminated); n != 0 && !f.after { // a write whose reply is lost is a mark
				g.show()
				t.Fatalf("%d terminated without a mark", n)
			}
			healed.Store(true)
			g.ticks(40, func(nodes.Report) bool { f := g.Fleet(); return f.Alive == 2 && f.StaleNodes == 0 && f.Cordoned == 0 })
			if n := g.count(sim.Lost); n != 0 {
				t.Errorf("pods lost: %d entries", n)
			}
		})
	}
}
