// Package ec2 runs workers on Amazon EC2: it implements nodes.Cloud with the AWS SDK, and polls interruption events from an SQS
// queue; package event reads them.
//
// What it does with a request is chosen for a caller that may crash at any point and may be paused for any time:
//
//   - Every launch carries the caller's client token, so that repeating it gives the same instance. RunInstances is repeated here
//     only after a throttled attempt, which certainly started nothing.
//   - No request is sent after the context's deadline, retries by the SDK included.
//   - A list is complete or an error: each page, and that the reply came from EC2 at all. The SDK takes an empty body, or a proxy's
//     page of HTML, for an empty list.
//   - A *nodes.LaunchError is returned only for answers that say that nothing was started; for all others the outcome is unknown.
//
// A node learns its own name, provider ID and zone at boot from the instance metadata service, and fetches the token by which it
// joins from SSM or Secrets Manager with its own role. See UserData.
package ec2
