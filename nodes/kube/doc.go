// Package kube lets the node plane see and drain a Kubernetes cluster: it implements nodes.Cluster with client-go.
//
//   - View lists nodes, disruption budgets and pods, each in pages of one consistent read, and tells of every node what would block
//     its drain. The number of requests does not depend on the pods beyond the number of pages.
//   - Cordon and Uncordon keep claims in an annotation beside the cordon, written only onto the very object that was read.
//   - Drain goes through the eviction API, with the UID of every pod as a precondition, and is continued by calling it again.
//   - Remove deletes a Node object under its UID.
//   - Check is what `muster nodes doctor` asks: permissions, the token's expiry, pods that would block, the shape of nodes.
//
// Settings describe how to reach the API: a kubeconfig, the service account inside a cluster, or a URL with the cluster's CA and a
// token that is fetched by reference and read again before it expires. The API's certificate is always verified.
//
// No request is sent after its context's deadline, by whichever clock that was set. The rules of the drain are in
// docs/nodes/design.md, the permissions in docs/nodes/deploy.md.
package kube
