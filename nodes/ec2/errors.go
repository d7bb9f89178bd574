package ec2

import (
	"errors"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/muster-dev/muster/nodes"
)

// launchFailures says what each error code of RunInstances means for the next launch. The codes are those of
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html; SDKs leave off the leading Client. or Server.
var launchFailures = map[string]nodes.LaunchFailure{
	// This type, in this market and zone, can't be had now.
	"InsufficientInstanceCapacity":         nodes.FailCapacity,
	"InsufficientHostCapacity":             nodes.FailCapacity,
	"InsufficientReservedInstanceCapacity": nodes.FailCapacity,
	"InsufficientVolumeCapacity":           nodes.FailCapacity,
	"InsufficientCapacity":                 nodes.FailCapacity,
	"UnfulfillableCapacity":                nodes.FailCapacity,
	"SpotMaxPriceTooLow":                   nodes.FailCapacity,
	"Unsupported":                          nodes.FailCapacity, // the zone doesn't have the type
	"UnsupportedOperation":                 nodes.FailCapacity, // the type isn't sold in this market
	"VolumeTypeNotAvailableInZone":         nodes.FailCapacity,

	// The account may not have more of this type in this market, in any zone.
	"VcpuLimitExceeded":            nodes.FailQuota,
	"InstanceLimitExceeded":        nodes.FailQuota,
	"MaxSpotInstanceCountExceeded": nodes.FailQuota,
	"HostLimitExceeded":            nodes.FailQuota,
	"VolumeLimitExceeded":          nodes.FailQuota,
	"MaxIOPSLimitExceeded":         nodes.FailQuota,

	"InsufficientFreeAddressesInSubnet": nodes.FailAddresses,

	"AuthFailure.ServiceLinkedRoleCreationNotPermitted": nodes.FailSpotRole,

	"RequestLimitExceeded":      nodes.FailThrottled,
	"Throttling":                nodes.FailThrottled,
	"ThrottlingException":       nodes.FailThrottled,
	"ThrottledException":        nodes.FailThrottled,
	"RequestThrottled":          nodes.FailThrottled,
	"RequestThrottledException": nodes.FailThrottled,
	"TooManyRequestsException":  nodes.FailThrottled,
	"BandwidthLimitExceeded":    nodes.FailThrottled,
	"EC2ThrottledException":     nodes.FailThrottled,
	"ConcurrentTagAccess":       nodes.FailThrottled, // too many changes of tags at once

	"IdempotentInstanceTerminated": nodes.FailTokenSpent,

	// These come with status 4xx as well, but say nothing about whether an instance was started.
	"RequestTimeout":          "",
	"RequestTimeoutException": "",
	"InternalError":           "",
	"InternalFailure":         "",
	"Unavailable":             "",
	"ServiceUnavailable":      "",
}

// launchError turns what a launch ended with into a *nodes.LaunchError if it says that nothing was started. A code that is not known
// is a definite refusal if EC2 blames the request for it (status 4xx); otherwise the outcome is unknown.
func launchError(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return explained(err)
	}
	kind, known := launchFailures[code(api)]
	if !known {
		switch status := statusOf(err); {
		case status == http.StatusTooManyRequests:
			kind = nodes.FailThrottled
		case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
			kind = nodes.FailPermanent
		}
	}
	if kind == "" {
		return explained(err)
	}
	return &nodes.LaunchError{Kind: kind, Code: code(api), Message: message(api)}
}

// spotError turns a final refusal of Spot into one that leaves On-Demand to be tried: a permission can be missing for Spot alone, and an
// error whose code is not known can be about it. If it is about neither, On-Demand is refused by the same error and the action ends then.
// A token that was used for another request is not about Spot: an instance may run by it.
func spotError(err error, market nodes.Market) error {
	var le *nodes.LaunchError
	if market != nodes.Spot || !errors.As(err, &le) || le.Kind != nodes.FailPermanent || le.Code == "IdempotentParameterMismatch" {
		return err
	}
	return &nodes.LaunchError{Kind: nodes.FailSpot, Code: le.Code, Message: le.Message}
}

// code returns an error's code without the fault's side, which raw replies put before it.
func code(err smithy.APIError) string {
	c := err.ErrorCode()
	for _, side := range []string{"Client.", "Server."} {
		c = strings.TrimPrefix(c, side)
	}
	return c
}

func statusOf(err error) int {
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) {
		return re.HTTPStatusCode()
	}
	return 0
}

// message returns what an error says and what to do about it, if that is known. The encoded authorization failure is left out: it is
// a screenful that only its receiver can decode.
func message(err smithy.APIError) string {
	m, _, _ := strings.Cut(err.ErrorMessage(), " Encoded authorization failure message:")
	if fix := fixes[code(err)]; fix != "" {
		m = strings.TrimSuffix(m, ".") + "; " + fix
	}
	return m
}

// fixes says what to do about errors that a person has to see to.
var fixes = map[string]string{
	"UnauthorizedOperation":                             "add the permission to Muster's role, or start `muster nodes doctor` to see all that are missing",
	"AccessDeniedException":                             "add the permission to Muster's role, or start `muster nodes doctor` to see all that are missing",
	"AuthFailure":                                       "check the credentials and the machine's clock",
	"RequestExpired":                                    "check the machine's clock",
	"ExpiredToken":                                      "renew the credentials",
	"ParameterNotFound":                                 "correct the name and the region, or create the parameter",
	"ParameterVersionNotFound":                          "correct the version after the name",
	"OptInRequired":                                     "enable the region for the account",
	"InvalidAMIID.NotFound":                             "set AMI_ID to an image of this region",
	"InvalidSubnetID.NotFound":                          "correct SUBNET_IDS",
	"IdempotentParameterMismatch":                       "a setting or version changed between a launch and its repetition; the action ends and the sweep sees to what was started",
	"InvalidLaunchTemplateId.VersionNotFound":           "correct LAUNCH_TEMPLATE_VERSION",
	"InvalidLaunchTemplateId.NotFound":                  "correct LAUNCH_TEMPLATE",
	"InvalidLaunchTemplateName.NotFoundException":       "correct LAUNCH_TEMPLATE",
	"OperationNotPermitted":                             "take termination protection off workers",
	"AuthFailure.ServiceLinkedRoleCreationNotPermitted": "create the role once: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
}

// refusalError is an error of the service with its fix.
type refusalError struct {
	api smithy.APIError
	err error
}

func (e *refusalError) Error() string { return code(e.api) + ": " + message(e.api) }
func (e *refusalError) Unwrap() error { return e.err }

// explained shortens an error of the service to its code, its message and its fix; other errors it leaves as they are.
func explained(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	return &refusalError{api, err}
}

func isCode(err error, codes ...string) bool {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return false
	}
	for _, c := range codes {
		if code(api) == c {
			return true
		}
	}
	return false
}
