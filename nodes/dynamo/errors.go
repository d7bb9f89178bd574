package dynamo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

// Error says what could not be done with a table, why, and what to do about it. Whether a write that failed took effect is not
// known, unless Code is DynamoDB's refusal.
type Error struct {
	Doing string // for example "writing the record"
	Table string
	Code  string // DynamoDB's own, "" if there was no answer
	Why   string
	Fix   string // "" if there is nothing to do but to wait
	Err   error
}

// Error returns it as one line.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s in table %s: %s", e.Doing, e.Table, e.Why)
	if e.Fix != "" {
		s += ": " + e.Fix
	}
	return s
}

// Unwrap returns the client's error.
func (e *Error) Unwrap() error { return e.Err }

// ItemTooLargeError says that an item would pass DynamoDB's limit of 400 KB. Nothing was written.
type ItemTooLargeError struct {
	Key       string
	Bytes     int    // 0 if only DynamoDB knows
	Attribute string // the largest
}

// Error names the item, its size and its largest attribute.
func (e *ItemTooLargeError) Error() string {
	if e.Bytes == 0 {
		return fmt.Sprintf("item %s would be larger than DynamoDB's 400 KB", e.Key)
	}
	return fmt.Sprintf("item %s would have %d bytes, DynamoDB takes %d: most of them are in %s", e.Key, e.Bytes, maxItem, e.Attribute)
}

// ItemError says that an item is not what it should be: somebody else wrote it, or it is damaged.
type ItemError struct {
	Table string
	Key   string
	Why   string // names the attribute
}

// Error names the table, the item and the attribute.
func (e *ItemError) Error() string {
	return fmt.Sprintf("item %s of table %s can't be read: %s: correct the item, or remove it", e.Key, e.Table, e.Why)
}

// explain puts DynamoDB's refusals into plain words. api is the action that a policy would have to allow, without its prefix.
func (d *DB) explain(doing, table, api string, err error) error {
	out := &Error{Doing: doing, Table: table, Err: err}
	var refusal smithy.APIError
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		return fmt.Errorf("%s in table %s: %w", doing, table, err)
	case errors.As(err, &refusal):
		out.Code = refusal.ErrorCode()
		out.Why, out.Fix = d.reason(out.Code, refusal.ErrorMessage(), table, api)
	default:
		out.Why = fmt.Sprintf("DynamoDB in %s did not answer (%v)", d.region, last(err))
		out.Fix = "check the network, the region and the credentials"
	}
	return out
}

func (d *DB) reason(code, message, table, api string) (why, fix string) {
	switch code {
	case "ResourceNotFoundException":
		return "the table does not exist in " + d.region, "correct STATE_TABLE, LOGS_TABLE or AWS_REGION, or let `muster nodes doctor --create-tables` create it"
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "Throttling":
		return "DynamoDB asks to slow down (" + code + ")", "if it lasts, give the table more capacity or make it on-demand"
	case "AccessDeniedException", "UnauthorizedOperation":
		return "not permitted", "allow dynamodb:" + api + " on table " + table + " (" + message + ")"
	case "UnrecognizedClientException", "InvalidSignatureException", "MissingAuthenticationTokenException", "ExpiredTokenException", "IncompleteSignatureException":
		return "the credentials are not accepted (" + code + ")", "renew them, and check the machine's clock"
	case "InternalServerError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException":
		return "DynamoDB has a fault of its own (" + code + ")", ""
	}
	return strings.TrimSpace(code + ": " + message), ""
}

// last returns the innermost error, where the cause is.
func last(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

func conditionFailed(err error) bool {
	var c *types.ConditionalCheckFailedException
	return errors.As(err, &c)
}

// tooLarge reports whether DynamoDB refused an item for its size.
func tooLarge(err error) bool {
	var refusal smithy.APIError
	return errors.As(err, &refusal) && refusal.ErrorCode() == "ValidationException" && strings.Contains(strings.ToLower(refusal.ErrorMessage()), "item size")
}
