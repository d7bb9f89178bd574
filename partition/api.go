package partition

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// Times of requests to JetStream.
const (
	// leastPull is the least that one pull asks for.
	leastPull = 64
	// pullRetry is the pause after a pull that the server could not take.
	pullRetry = 100 * time.Millisecond
	// apiTimeout bounds one request of the JetStream API. An operation of several requests takes
	// as long as these do: a worker may be so far from its server that one takes most of it.
	apiTimeout = 2 * time.Second
	// stalePinCheck is how often a silent slot that is held looks at its consumer;
	// Config.stalePinCheck in tests. See Config.secondLook, too.
	stalePinCheck = 5 * time.Second
	// manySlots is how many slots a group can have before each looks at its silence less often, so
	// that an idle group asks its servers at most 200 times a second. It is then at most
	// longestSilence times as long.
	manySlots      = 1000
	longestSilence = 6
	// maxRetryDelay bounds the pause between tries of a failing message.
	maxRetryDelay = 5 * time.Second
)

// askServer sends a request to the server and waits for its answer for at most apiTimeout.
func askServer(ctx context.Context, nc *nats.Conn, msg *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return nc.RequestMsgWithContext(ctx, msg)
}

// apiError is the part of a JetStream API answer that reports whether it failed.
type apiError struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     uint16 `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

const codeConsumerNotFound = 10014

var errNoConsumer = errors.New("the consumer does not exist")
