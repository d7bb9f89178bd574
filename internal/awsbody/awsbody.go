// Package awsbody has the AWS SDK send request bodies that net/http can finish with at any time.
package awsbody

import (
	"context"
	"fmt"
	"io"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const id = "MusterReadOnlyBody"

// AddReadOnly is an option of an AWS client. It hides the method WriteTo of the bodies of its requests.
//
// The SDK closes a request's body when it has the response's header. net/http may not have finished writing then: it reads the body
// once more to see that nothing follows. The SDK's closed body answers Read with io.EOF, as it should, and WriteTo with io.EOF too,
// which [io.Copy] takes for a failure. Then net/http closes the connection, and the rest of the response is lost: "use of closed
// network connection". That happens where the cores are busy, several attempts in a row. See
// https://github.com/aws/aws-sdk-go-v2/issues/2737.
func AddReadOnly(s *middleware.Stack) error {
	if _, ok := s.Serialize.Get(id); ok {
		return nil
	}
	return s.Serialize.Add(middleware.SerializeMiddlewareFunc(id, func(ctx context.Context, in middleware.SerializeInput, next middleware.SerializeHandler) (middleware.SerializeOutput, middleware.Metadata, error) {
		request, ok := in.Request.(*smithyhttp.Request)
		if !ok {
			return next.HandleSerialize(ctx, in)
		}

		body, ok := request.GetStream().(io.ReadSeeker)
		if !ok { // none, or one that can't be sent again
			return next.HandleSerialize(ctx, in)
		}

		request, err := request.SetStream(struct{ io.ReadSeeker }{body})
		if err != nil {
			return middleware.SerializeOutput{}, middleware.Metadata{}, fmt.Errorf("preparing the request's body: %w", err)
		}
		in.Request = request
		return next.HandleSerialize(ctx, in)
	}), middleware.After) // the serializer has set the body
}
