// Command muster-lambda is the node plane as an AWS Lambda function for the runtime provided.al2023. Its settings are the
// environment's and those of the document that its variable SETTINGS holds or names; docs/nodes/deploy.md says how it is set up.
//
// Wrong settings end it before its first invocation, with one message that lists all of them and exit code 2. A document that can't be
// read ends it with 1: Lambda tries again at the next invocation.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	runtime "github.com/aws/aws-lambda-go/lambda"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/lambda"
	"github.com/muster-dev/muster/setting"
)

func main() {
	h, err := newHandler(context.Background(), os.LookupEnv, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "muster-lambda:", err)
		os.Exit(exitCode(err))
	}
	runtime.Start(h)
}

func exitCode(err error) int {
	if errors.As(err, new(*connect.UnreadError)) {
		return 1
	}
	return 2
}

// newHandler reads the settings and prepares what the first invocation opens.
func newHandler(ctx context.Context, lookup setting.Lookup, log io.Writer) (*lambda.Handler, error) {
	var own []string
	for _, i := range lambda.Settings() {
		own = append(own, i.Env)
	}
	lookup, documentErr := connect.FunctionLookup(ctx, lookup, own...)
	if errors.As(documentErr, new(*connect.UnreadError)) {
		return nil, documentErr // what the document would set is not wrong for that
	}
	s, err := connect.Parse(lookup)
	c, lambdaErr := lambda.ConfigFromEnv(lookup)
	var tables error
	if s.Policy.StateTable == "" && s.Policy.LogsTable == "" {
		tables = &setting.Error{Problems: []setting.Problem{{Setting: "STATE_TABLE", Fix: "name the DynamoDB tables by STATE_TABLE and LOGS_TABLE: a function keeps nothing on its disk"}}}
	}
	if err := setting.Join(documentErr, err, lambdaErr, tables); err != nil {
		return nil, err
	}
	c.Log = slog.New(slog.NewJSONHandler(log, nil))
	return lambda.New(c, func(ctx context.Context) (lambda.Plane, error) {
		plane, err := connect.Open(ctx, s, connect.Options{Log: c.Log})
		if err != nil {
			return nil, err
		}
		return nodes.New(plane.Config)
	}), nil
}
