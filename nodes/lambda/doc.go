// Package lambda is the node plane as AWS Lambda functions: one that ticks at every scheduled event, one that handles interruption
// events, or both in one. A Handler reads an event of either kind as EventBridge or an SQS queue delivers it and calls the
// reconciler:
//
//	handler := lambda.New(lambda.Config{Function: lambda.Both}, func(ctx context.Context) (lambda.Plane, error) {
//		return open(ctx) // a *nodes.Reconciler
//	})
//	runtime.Start(handler) // of github.com/aws/aws-lambda-go/lambda
//
// The reconciler is opened by the first invocation, not before: what a function does before it asks for its first event is
// billed and delays every new instance of it. Work ends a moment before Lambda would cut it off, so that what has been done is
// written down and the lease given back; the next tick takes it up.
package lambda
