// Package deploy holds what the node plane is deployed with: a CloudFormation template for AWS and the role for Kubernetes. Its tests
// compare what they permit with what the code really asks for, both ways, and create the stack on a server of the AWS APIs.
package deploy
