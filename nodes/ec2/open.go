package ec2

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/muster-dev/muster/internal/awsbody"
)

// Open returns a Cloud that talks to AWS, or to where c.Endpoints says. Credentials and region come from where the AWS SDK finds
// them; no request is made before the first call.
func Open(ctx context.Context, c Config) (*Cloud, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	cfg, err := loadAWS(ctx, c)
	if err != nil {
		return nil, err
	}
	parameters := sync.OnceValue(func() *ssm.Client {
		return ssm.NewFromConfig(cfg, func(o *ssm.Options) { o.BaseEndpoint = endpoint(c, "ssm", o.BaseEndpoint) })
	})
	secrets := sync.OnceValue(func() *secretsmanager.Client {
		return secretsmanager.NewFromConfig(cfg, func(o *secretsmanager.Options) {
			o.BaseEndpoint = endpoint(c, "secretsmanager", o.BaseEndpoint)
		})
	})
	identity := sync.OnceValue(func() *sts.Client {
		return sts.NewFromConfig(cfg, func(o *sts.Options) { o.BaseEndpoint = endpoint(c, "sts", o.BaseEndpoint) })
	})
	prices := sync.OnceValue(func() *pricing.Client {
		return pricing.NewFromConfig(cfg, func(o *pricing.Options) {
			o.Region, o.BaseEndpoint = pricingRegion(cfg.Region), endpoint(c, "pricing", o.BaseEndpoint)
		})
	})
	api := API{
		EC2: ec2.NewFromConfig(cfg, func(o *ec2.Options) {
			o.BaseEndpoint = endpoint(c, "ec2", o.BaseEndpoint)
			Options(o)
		}),
		Parameters: lazyParameters{parameters}, Secrets: lazySecrets{secrets}, Identity: lazyIdentity{identity}, Pricing: lazyPricing{prices}, Region: cfg.Region,
	}
	return New(api, c)
}

// loadAWS returns the SDK's configuration with this package's rules for all clients: few retries, in short order, and none after the
// context's deadline.
func loadAWS(ctx context.Context, c Config) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{
		config.WithRetryer(func() aws.Retryer { return readRetryer() }),
		config.WithAPIOptions([]func(*middleware.Stack) error{awsbody.AddReadOnly, addDeadline}),
	}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	switch {
	case err != nil:
		return cfg, fmt.Errorf("reading the AWS configuration: %w", err)
	case cfg.Region == "":
		return cfg, errors.New("no AWS region is configured: set AWS_REGION, for example eu-central-1")
	}
	return cfg, nil
}

// OpenQueue returns a client of SQS for a Queue.
func OpenQueue(ctx context.Context, c Config) (SQS, error) {
	cfg, err := loadAWS(ctx, c)
	if err != nil {
		return nil, err
	}
	return sqs.NewFromConfig(cfg, func(o *sqs.Options) { o.BaseEndpoint = endpoint(c, "sqs", o.BaseEndpoint) }), nil
}

func endpoint(c Config, service string, found *string) *string {
	if url := c.endpoint(service); url != "" {
		return &url
	}
	return found
}

// The optional clients are made when they are first used: a Lambda's first answer should not wait for what it may never need.
type (
	lazyParameters struct{ get func() *ssm.Client }
	lazySecrets    struct {
		get func() *secretsmanager.Client
	}
	lazyIdentity struct{ get func() *sts.Client }
	lazyPricing  struct{ get func() *pricing.Client }
)

func (l lazyParameters) GetParameter(ctx context.Context, in *ssm.GetParameterInput, o ...func(*ssm.Options)) (*ssm.GetParameterOutput, error) {
	return l.get().GetParameter(ctx, in, o...)
}

func (l lazySecrets) GetSecretValue(ctx context.Context, in *secretsmanager.GetSecretValueInput, o ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	return l.get().GetSecretValue(ctx, in, o...)
}

func (l lazyIdentity) GetCallerIdentity(ctx context.Context, in *sts.GetCallerIdentityInput, o ...func(*sts.Options)) (*sts.GetCallerIdentityOutput, error) {
	return l.get().GetCallerIdentity(ctx, in, o...)
}

func (l lazyPricing) GetProducts(ctx context.Context, in *pricing.GetProductsInput, o ...func(*pricing.Options)) (*pricing.GetProductsOutput, error) {
	return l.get().GetProducts(ctx, in, o...)
}

// ---- retries, deadlines, replies

// A call of the node plane has 15 s. Three attempts with at most a second between them fit well within.
const (
	attempts   = 3
	maxBackoff = time.Second
)

func readRetryer() *retry.Standard {
	return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = attempts, maxBackoff })
}

// Options makes an EC2 client fit for a Cloud. RunInstances is attempted again only after a throttled attempt: after any other failure
// either nobody knows whether an instance was started, and the caller decides, or there is a capacity error, which the SDK would
// repeat although another offering is what helps.
func Options(o *ec2.Options) {
	if o.Retryer == nil {
		o.Retryer = readRetryer()
	}
	launches := launchRetryer{o.Retryer}
	o.APIOptions = append(o.APIOptions, awsbody.AddReadOnly, addDeadline, addRealReply, func(s *middleware.Stack) error {
		if s.ID() != "RunInstances" {
			return nil
		}
		_, err := s.Finalize.Swap("Retry", retry.NewAttemptMiddleware(launches, smithyhttp.RequestCloner))
		return err
	})
}

// launchRetryer retries throttled attempts only.
type launchRetryer struct{ aws.Retryer }

// IsErrorRetryable reports whether the attempt is known to have been turned away before it was looked at.
func (r launchRetryer) IsErrorRetryable(err error) bool {
	return statusOf(err) != 0 && isCode(err, "RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "RequestThrottledException", "EC2ThrottledException")
}

// addDeadline makes attempts after the context's deadline fail before they are sent, whichever clock the context goes by. It is the
// innermost step, so that signing and retrying can't come between.
func addDeadline(s *middleware.Stack) error {
	if _, ok := s.Deserialize.Get(deadlineID); ok {
		return nil
	}
	return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc(deadlineID, func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		if err := ctx.Err(); err != nil {
			return middleware.DeserializeOutput{}, middleware.Metadata{}, &aws.RequestCanceledError{Err: err}
		}
		return next.HandleDeserialize(ctx, in)
	}), middleware.After)
}

const deadlineID = "MusterDeadline"

// addRealReply makes successful replies that EC2 did not write fail: the SDK takes whatever has no known element, a proxy's page or
// nothing at all, for an empty result.
func addRealReply(s *middleware.Stack) error {
	want := []byte("<" + s.ID() + "Response")
	return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("MusterRealReply", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		response, ok := out.RawResponse.(*smithyhttp.Response)
		if err != nil || !ok || response.StatusCode != http.StatusOK {
			return out, metadata, err
		}
		body := bufio.NewReaderSize(response.Body, 1024)
		head, readErr := body.Peek(512) // the element comes right after the XML declaration
		if readErr != nil && !errors.Is(readErr, io.EOF) {
			return out, metadata, fmt.Errorf("reading the reply to %s: %w", s.ID(), readErr)
		}
		if !bytes.Contains(head, want) {
			return out, metadata, fmt.Errorf("the reply to %s is not EC2's: it begins with %.60q; look for a proxy in between", s.ID(), head)
		}
		response.Body = struct {
			io.Reader
			io.Closer
		}{body, response.Body}
		return out, metadata, nil
	}), middleware.After)
}
