// Package deploy holds what Muster is deployed with: a CloudFormation template for AWS, manifests for Kubernetes, alert rules and dashboards.
// Its tests compare what they permit and show with what the code really asks for and exports, both ways, and create the stack on a server
// of the AWS APIs.
package deploy
