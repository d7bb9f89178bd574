package dynamo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/storetest"
)

var servers component.Pool

func TestMain(m *testing.M) {
	code := m.Run()
	servers.Stop()
	os.Exit(code)
}

var start = time.Unix(1730000000, 0)

// forever keeps events whose times are made up.
const forever = 3650

var tableNumber atomic.Int64

// backend is a server and two tables that only one test uses.
type backend struct {
	addr string
	cfg  Config
}

// fresh creates the tables of one test on a component.
func fresh(t *testing.T, c component.Component) *backend {
	t.Helper()
	s := servers.Get(t, c)
	n := tableNumber.Add(1)
	b := &backend{addr: s.Addr, cfg: Config{StateTable: fmt.Sprintf("state-%d", n), LogsTable: fmt.Sprintf("logs-%d", n), KeepDays: forever}}
	if err := b.open(t, nil).CreateTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// open returns one more client, as another process would have it. Its requests pass through through, if that is not nil.
func (b *backend) open(t *testing.T, through middle) *DB {
	t.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	ac := aws.Config{
		Region: "eu-central-1", BaseEndpoint: ptr("http://" + b.addr), Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient: &http.Client{Transport: &tap{to: transport, through: through}},
	}
	d, err := New(ac, b.cfg, func(o *dynamodb.Options) {
		o.Retryer = retry.NewStandard(func(r *retry.StandardOptions) {
			r.MaxAttempts, r.MaxBackoff, r.RateLimiter = 4, time.Millisecond, unlimited{}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// unlimited lets the client retry as often as its attempts allow: the tests fail more requests than any real network.
type unlimited struct{}

func (unlimited) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (unlimited) AddTokens(uint) error { return nil }

// middle sees every request and decides what becomes of it. op is for example UpdateItem.
type middle func(op string, r *http.Request, send func() (*http.Response, error)) (*http.Response, error)

type tap struct {
	to      http.RoundTripper
	through middle
}

func (t *tap) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, ok := r.Body.(io.WriterTo); ok {
		return nil, errors.New("net/http may close the connection before the response is read: see internal/awsbody")
	}

	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	send := func() (*http.Response, error) { return t.to.RoundTrip(r) }
	if t.through == nil {
		return send()
	}
	return t.through(op, r, send)
}

// lossy drops the reply of every nth write after it took effect.
func lossy(n int) middle {
	var mu sync.Mutex
	writes := 0
	return func(op string, _ *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
		res, err := send()
		if op != "UpdateItem" && op != "PutItem" || err != nil {
			return res, err
		}
		mu.Lock()
		defer mu.Unlock()
		if writes++; writes%n != 0 {
			return res, nil
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return nil, io.ErrUnexpectedEOF
	}
}

// refuse answers as DynamoDB does.
func refuse(status int, code, message string) (*http.Response, error) {
	body := fmt.Sprintf(`{"__type":"com.amazonaws.dynamodb.v20120810#%s","message":%q}`, code, message)
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		Body: io.NopCloser(bytes.NewBufferString(body)), ContentLength: int64(len(body)),
	}, nil
}

// each runs a test on every server that speaks the API.
func each(t *testing.T, f func(t *testing.T, c component.Component)) {
	for _, c := range []component.Component{component.DynamoDBLocal(), component.Dynalite()} {
		t.Run(c.Name, func(t *testing.T) { f(t, c) })
	}
}

func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, c component.Component) {
		for name, through := range map[string]func() middle{
			"with every reply":                    func() middle { return nil },
			"with every third write's reply lost": func() middle { return lossy(3) },
		} {
			t.Run(name, func(t *testing.T) {
				storetest.Run(t, func(t *testing.T) storetest.Open {
					b := fresh(t, c)
					return func(t *testing.T) (nodes.Store, nodes.EventLog) {
						d := b.open(t, through())
						return d.Store(), d.EventLog()
					}
				})
			})
		}
	})
}

// answer is a successful reply.
func answer(body string) (*http.Response, error) {
	res, err := refuse(200, "", "")
	res.Body, res.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return res, err
}
