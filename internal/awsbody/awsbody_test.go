package awsbody

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"
)

// A response arrives while the goroutine that writes the request has just written the body and is kept waiting, as it is where the
// cores are busy. The whole response must be read all the same. Without the option it is not: the SDK still needs it.
func TestAddReadOnly(t *testing.T) {
	if err := describe(t, AddReadOnly, AddReadOnly); err != nil {
		t.Error(err)
	}
	if err := describe(t); err == nil || !strings.Contains(err.Error(), "use of closed network connection") {
		t.Errorf("without the option: got %v; if the SDK no longer needs it, remove this package", err)
	}
}

// describe makes one attempt of a request, on a connection whose writer goes on only once the SDK has closed the request's body.
func describe(t *testing.T, options ...func(*middleware.Stack) error) error {
	t.Helper()
	closed, lost := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		_, _ = w.Write([]byte("<DescribeInstancesResponse>"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-lost: // the client has given up
		case <-time.After(200 * time.Millisecond): // or would have
		}
		_, _ = w.Write([]byte("<reservationSet/></DescribeInstancesResponse>"))
	}))
	defer server.Close()

	transport := awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
		tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &delayed{Conn: conn, until: closed, closed: lost}, err
		}
	})
	client := ec2.NewFromConfig(aws.Config{
		Region: "local", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("AKID", "SECRET", ""),
		HTTPClient: transport, RetryMaxAttempts: 1,
	}, func(o *ec2.Options) {
		o.APIOptions = append(append(o.APIOptions, options...), func(s *middleware.Stack) error {
			return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("BodyClosed", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleDeserialize(ctx, in)
				close(closed)
				return out, metadata, err
			}), middleware.After) // around what sends the request and closes its body
		})
	})
	_, err := client.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{})
	return err
}

// delayed is a connection whose writes of a body return late.
type delayed struct {
	net.Conn
	until  <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (d *delayed) Write(b []byte) (int, error) {
	n, err := d.Conn.Write(b)
	if strings.Contains(string(b), "Action=DescribeInstances") {
		<-d.until
	}
	return n, err
}

func (d *delayed) Close() error {
	d.once.Do(func() { close(d.closed) })
	return d.Conn.Close()
}
